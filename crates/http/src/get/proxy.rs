//! Proxies from the environment: `http_proxy`, `https_proxy`, `all_proxy`, `no_proxy`.
//!
//! All but the first are read in capitals too. `HTTP_PROXY` is not, because in a CGI program it has the
//! client's `Proxy:` header (<https://httpoxy.org>). An empty variable counts as unset. The rules of
//! `no_proxy` are curl's.

use hyper_util::client::proxy::matcher::Matcher;
use seekless_base::Fault;
use url::Url;

use super::place::{Place, shown};

/// Most exceptions of `no_proxy` that are read.
const EXCEPTIONS_MAX: usize = 10_000;

/// What a variable says: where the proxy is, and how it is spoken to.
fn parse(name: &str, text: &str) -> Result<Place, Fault> {
    let wrong =
        |why: &str| Fault::usage(format!("{name}={}: {why}; write {name}=http://host:port", shown(text)));
    let text = text.trim();
    let whole = if text.contains("://") { text.to_string() } else { format!("http://{text}") };
    let url = Url::parse(&whole).map_err(|_| wrong("is no address of a proxy"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong("only proxies that speak HTTP are known"));
    }
    Place::of(url).map_err(|why| wrong(&why))
}

/// The host of an exception, with or without brackets, and its port, if it names one.
fn host_and_port(exception: &str) -> (&str, Option<&str>) {
    let split = exception.rsplit_once(':').filter(|(host, _)| !host.contains(':') || host.ends_with(']'));
    let (host, port) = split.map_or((exception, None), |(host, port)| (host, Some(port)));
    (host.trim_matches(['[', ']']), port)
}

/// The proxies of http and https, and the exceptions. The default uses no proxy.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    /// A malformed variable is an error of the downloads that need it.
    http: Option<Result<Place, Fault>>,
    https: Option<Result<Place, Fault>>,
    exceptions: Vec<String>,
}

impl Proxies {
    /// From the environment.
    pub fn of_environment() -> Proxies {
        // A name that is not UTF-8 is not a host name.
        Proxies::of_variables(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    /// From these variables.
    pub fn of_variables(variable: impl Fn(&str) -> Option<String>) -> Proxies {
        let first = |names: &[&str]| {
            let set =
                |name: &&str| variable(name).filter(|v| !v.trim().is_empty()).map(|v| (name.to_string(), v));
            names.iter().find_map(set)
        };
        let proxy = |names: &[&str]| first(names).map(|(name, text)| parse(&name, &text));
        let exceptions = first(&["no_proxy", "NO_PROXY"]).map(|(_, list)| list).unwrap_or_default();
        Proxies {
            http: proxy(&["http_proxy", "all_proxy", "ALL_PROXY"]),
            https: proxy(&["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]),
            exceptions: exceptions.split([',', ' ', '\t']).take(EXCEPTIONS_MAX).map(String::from).collect(),
        }
    }

    /// The proxy for this request; `None`: connect to the server itself.
    ///
    /// # Errors
    /// The variable for it is malformed.
    pub(crate) fn of_place(&self, place: &Place) -> Result<Option<&Place>, Fault> {
        let proxy = if place.is_secure() { &self.https } else { &self.http };
        match proxy {
            Some(proxy) if !self.is_excepted(place) => proxy.as_ref().map(Some).map_err(Clone::clone),
            _ => Ok(None),
        }
    }

    fn is_excepted(&self, place: &Place) -> bool {
        let port = place.port().to_string();
        let exceptions = self.exceptions.iter().map(|exception| host_and_port(exception));
        let hosts: Vec<&str> = exceptions
            .filter(|(_, its)| its.is_none_or(|its| its == port))
            .map(|(host, _)| host.trim_end_matches('.'))
            .collect();
        // The matcher takes `*` for all names, and not for addresses.
        hosts.contains(&"*") || {
            let matcher = Matcher::builder().all("http://proxy").no(hosts.join(",")).build();
            let host = place.url.host_str().unwrap_or_default().trim_end_matches('.');
            format!("http://{host}/").parse().is_ok_and(|uri| matcher.intercept(&uri).is_none())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(variables: &[(&str, &str)], url: &str) -> String {
        let of = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_string());
        match Proxies::of_variables(of).of_place(&Place::parse(url).unwrap()) {
            Ok(proxy) => proxy.map_or_else(|| "none".into(), Place::host_and_port),
            Err(fault) => fault.message,
        }
    }

    #[test]
    fn variables_are_those_that_others_know() {
        for (variables, url, proxy) in [
            (&[("http_proxy", "http://p:3128")][..], "http://h/", "p:3128"),
            (&[("http_proxy", "p:3128")], "http://h/", "p:3128"),
            (&[("http_proxy", "http://p:3128")], "https://h/", "none"),
            (&[("HTTP_PROXY", "http://p:3128")], "http://h/", "none"),
            (&[("HTTPS_PROXY", "http://p:3128")], "https://h/", "p:3128"),
            (&[("https_proxy", "q"), ("HTTPS_PROXY", "p")], "https://h/", "q:80"),
            (&[("all_proxy", "p:1")], "http://h/", "p:1"),
            (&[("ALL_PROXY", "p:1")], "https://h/", "p:1"),
            (&[("all_proxy", "p:1"), ("http_proxy", "")], "http://h/", "p:1"),
            (&[("all_proxy", "p:1"), ("http_proxy", "q:2")], "http://h/", "q:2"),
            (&[("http_proxy", "[::1]:3128")], "http://h/", "[::1]:3128"),
            (&[("http_proxy", "https://p")], "http://h/", "p:443"),
        ] {
            assert_eq!(asked(variables, url), proxy, "{variables:?} {url}");
        }
        for wrong in ["socks5://p:1", "p:99999", "http://", "h h"] {
            let said = asked(&[("http_proxy", wrong)], "http://h/");
            assert!(said.starts_with(&format!("http_proxy={wrong}: ")), "{said}");
            assert_eq!(asked(&[("http_proxy", wrong)], "https://h/"), "none", "not needed");
        }
        let said = asked(&[("http_proxy", "socks5://me:secret@p:1")], "http://h/");
        assert!(!said.contains("secret"), "{said}");
    }

    #[test]
    fn exceptions_are_hosts_what_is_below_them_ports_and_networks() {
        for (list, url, excepted) in [
            ("*", "http://h/", true),
            ("h", "http://h/", true),
            ("h", "http://a.h/", true),
            (".h", "http://h/", true),
            ("h", "http://ah/", false),
            ("a.h", "http://h/", false),
            ("x, h ,y", "http://H./", true),
            ("x h", "http://h/", true),
            ("h:80", "http://h/", true),
            ("h:81", "http://h/", false),
            ("127.0.0.1", "http://127.0.0.1:8/", true),
            ("127.0.0.1:9", "http://127.0.0.1:8/", false),
            ("10.0.0.0/8", "http://10.1.2.3/", true),
            ("10.0.0.0/8", "http://11.1.2.3/", false),
            ("0.0.0.0/0", "http://11.1.2.3/", true),
            ("::1", "http://[::1]/", true),
            ("[::1]:80", "http://[::1]/", true),
            ("2001:db8::/32", "http://[2001:db8:1::1]/", true),
            ("2001:db8::/32", "http://[2001:db9::1]/", false),
            ("10.0.0.0/8", "http://h/", false),
            (",, :,/,.", "http://h/", false),
        ] {
            let proxy = asked(&[("http_proxy", "p:1"), ("no_proxy", list)], url);
            assert_eq!(proxy == "none", excepted, "{list} {url}");
        }
        assert_eq!(asked(&[("http_proxy", "p"), ("NO_PROXY", "h")], "http://h/"), "none");
    }
}
