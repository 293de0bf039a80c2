//! Certificates, read at the start and again on request.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use seekless_base::Fault;

/// Paths of certificate and key.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// PEM: the server's certificate first, then the chain to its authority.
    pub certificates: PathBuf,
    /// PEM.
    pub key: PathBuf,
}

/// Reads both and makes a configuration that offers HTTP/2 and HTTP/1.1.
///
/// # Errors
/// A file that cannot be read ([`seekless_output::input::unreadable`]), holds nothing of use, or a key that
/// does not belong to the certificate.
pub(crate) fn load(files: &TlsFiles) -> Result<Arc<ServerConfig>, Fault> {
    let fault = |path: &Path, why: &dyn std::fmt::Display| Fault::usage(format!("{}: {why}", path.display()));
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(&seekless_output::input::bytes(&files.certificates)?)
            .collect::<Result<_, _>>()
            .map_err(|e| fault(&files.certificates, &format!("{e}; give a PEM file")))?;
    if chain.is_empty() {
        return Err(fault(&files.certificates, &"no certificate in it; give a PEM file"));
    }
    let key = PrivateKeyDer::from_pem_slice(&seekless_output::input::bytes(&files.key)?)
        .map_err(|e| fault(&files.key, &format!("{e}; give a PEM file with its key")))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|e| fault(&files.key, &format!("does not match {}: {e}", files.certificates.display())))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use seekless_base::Exit;

    use super::*;

    #[test]
    fn what_is_wrong_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_string()]).unwrap();
        let other = rcgen::generate_simple_self_signed(vec!["localhost".to_string()]).unwrap();
        let at = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let certificates = at("cert.pem", &made.cert.pem());
        let key = at("key.pem", &made.signing_key.serialize_pem());
        assert!(load(&TlsFiles { certificates: certificates.clone(), key: key.clone() }).is_ok());
        let wrong = at("other.pem", &other.signing_key.serialize_pem());
        let empty = at("empty.pem", "");
        let missing = dir.path().join("none");
        for (certificates, key, named, exit) in [
            (&certificates, &wrong, "does not match", Exit::Usage),
            (&empty, &key, "no certificate", Exit::Usage),
            (&certificates, &empty, "empty.pem", Exit::Usage),
            (&missing, &key, "none", Exit::Missing),
        ] {
            let fault = load(&TlsFiles { certificates: certificates.clone(), key: key.clone() }).unwrap_err();
            assert!(fault.message.contains(named) && fault.exit == exit, "{fault}");
        }
    }
}
