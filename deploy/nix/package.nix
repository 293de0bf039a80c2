# Nix: nix-build -E 'with import <nixpkgs> {}; callPackage ./deploy/nix/package.nix { }'
#
# The program, the shim, the C library, units, pages and completions; `lab = true` adds the laboratory. A
# module of NixOS may use the units as they are: systemd.packages = [ seekless ].
{ lib, rustPlatform, installShellFiles, lab ? false }:

rustPlatform.buildRustPackage {
  pname = "seekless";
  version = "0.2.0";
  src = lib.cleanSource ../..;
  cargoLock.lockFile = ../../Cargo.lock;
  nativeBuildInputs = [ installShellFiles ];

  # The shim is linked against lists of symbols (crates/shim/build.rs) and loads into programs of any C
  # library.
  buildType = "dist";
  cargoBuildFlags = [ "-p" "seekless-shim" "-p" "seekless-order-c" "-p" "seekless-cli" ]
    ++ lib.optionals lab [ "-p" "seekless-lab" ];
  # Tests take servers, software disks and root; `make test` runs them.
  doCheck = false;

  postInstall = ''
    install -D -m 644 $out/lib/libseekless.so $out/lib/seekless/libseekless.so
    rm -f $out/lib/libseekless.so $out/lib/libseekless_order.a
    install -D -m 644 crates/order-c/include/seekless_order.h $out/include/seekless_order.h
    install -D -m 644 deploy/*.service deploy/*.socket -t $out/lib/systemd/system
    substituteInPlace $out/lib/systemd/system/*.service --replace-quiet /usr/local/bin/seekless $out/bin/seekless
    for program in seekless ${lib.optionalString lab "seekless-lab"}; do
      mkdir -p man-$program
      $out/bin/$program man --dir man-$program
      installManPage man-$program/*.1
      installShellCompletion --cmd $program \
        --bash <($out/bin/$program completions bash) \
        --zsh <($out/bin/$program completions zsh) \
        --fish <($out/bin/$program completions fish)
    done
    mkdir -p $out/share/seekless $out/share/doc/seekless
    cp -r deploy/prometheus deploy/grafana deploy/apparmor deploy/selinux deploy/seekless.toml $out/share/seekless/
    cp README.md CHANGELOG.md docs/*.md $out/share/doc/seekless/
  '' + lib.optionalString lab ''
    install -D -m 644 drives/*.toml -t $out/share/seekless/drives
  '';

  meta = {
    description = "Makes servers on hard disks deliver several times more";
    homepage = "https://github.com/seekless/seekless";
    license = with lib.licenses; [ asl20 mit ];
    platforms = [ "x86_64-linux" "aarch64-linux" ];
    mainProgram = "seekless";
  };
}
