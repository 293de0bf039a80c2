//! The container that the doctor runs in: what it has of its own, and what a server in it needs.

use seekless_frontend::advice::Finding;
use seekless_kernel::container::Container;

use super::recommend::Doors;

/// `daemon`: whether one answers here.
pub(super) fn finding(here: &Container, daemon: bool, doors: Doors) -> Finding {
    let has = [
        here.own_processes.then(|| "processes of its own".to_string()),
        here.own_users.then(|| "users of its own".to_string()),
        here.own_root.then(|| "a root folder of its own".to_string()),
        here.filter.then(|| "a filter of system calls".to_string()),
        here.memory_max.map(|max| format!("at most {} MiB of memory", max >> 20)),
    ];
    let has: Vec<String> = has.into_iter().flatten().collect();
    let mut advice = Vec::new();
    if !daemon {
        advice.push(
            "mount the folder of the host's socket (/run/seekless) here and set SEEKLESS_SOCKET, or run `seekless observe` on \
             the host"
                .to_string(),
        );
    }
    if here.filter {
        advice.push("a server that the shim is loaded into needs SEEKLESS_SECCOMP=allow".into());
    }
    match doors.observe {
        Ok(()) if here.own_processes => advice.push(
            "`observe` would sample here, which costs readers more; with the host's processes (hostPID) a program in the kernel \
             counts"
                .into(),
        ),
        Ok(()) => advice.push("`observe` works here for the folders of the host that are mounted".into()),
        Err(not) => advice.push(format!("`observe` does not work here: {not}")),
    }
    if here.memory_max.is_some() {
        advice.push("what is read ahead here counts as this container's memory until it is read".into());
    }
    let what = format!("this is a container, with {}", has.join(", "));
    Finding { kind: "container", blocks: false, what, advice: advice.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_said_with_what_a_server_in_it_needs() {
        let doors = |observe| Doors { watch: Err("no"), observe };
        let strict = Container {
            own_processes: true,
            own_users: false,
            own_root: true,
            filter: true,
            memory_max: Some(1 << 30),
        };
        let said = finding(&strict, false, doors(Err("observing needs root")));
        let with = "this is a container, with processes of its own, a root folder of its own, a filter of system calls, \
                    at most 1024 MiB of memory";
        assert_eq!(said.what, with);
        assert!(!said.blocks && said.advice.contains("/run/seekless"), "{}", said.advice);
        assert!(said.advice.contains("SEEKLESS_SECCOMP=allow") && said.advice.contains("needs root"));
        // The container of the DaemonSet.
        let node = Container { own_root: true, ..Container::default() };
        let said = finding(&node, true, doors(Ok(())));
        assert!(!said.advice.contains("/run/seekless") && said.advice.contains("`observe` works here"));
        let samples = finding(&strict, true, doors(Ok(())));
        assert!(samples.advice.contains("hostPID"), "{}", samples.advice);
    }
}
