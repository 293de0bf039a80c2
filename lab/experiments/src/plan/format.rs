//! Numbers for people.

/// Bytes with a binary unit and three digits.
pub(crate) fn size(bytes: f64) -> String {
    let mut value = bytes;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if value < 1023.5 {
            return if value < 9.95 && unit != "B" {
                format!("{value:.2} {unit}")
            } else if value < 99.5 && unit != "B" {
                format!("{value:.1} {unit}")
            } else {
                format!("{value:.0} {unit}")
            };
        }
        value /= 1024.0;
    }
    format!("{value:.1} PiB")
}

/// A rate in MB/s.
pub(crate) fn rate(bytes_per_s: f64) -> String {
    let mb = bytes_per_s / 1e6;
    if mb < 99.5 { format!("{mb:.1} MB/s") } else { format!("{mb:.0} MB/s") }
}

/// A number without more digits than help.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_keep_three_digits() {
        for (bytes, text) in [
            (0.0, "0 B"),
            (1023.0, "1023 B"),
            (1536.0, "1.50 KiB"),
            (10.0 * 1048576.0, "10.0 MiB"),
            (1023.9 * 1048576.0, "1.00 GiB"),
            (5e17, "444.1 PiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
        assert_eq!((rate(12.34e6), rate(123.4e6)), ("12.3 MB/s".into(), "123 MB/s".into()));
    }
}
