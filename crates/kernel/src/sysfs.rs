//! Values that the kernel shows as files of one line.

use std::fs;
use std::path::Path;
use std::str::FromStr;

/// The folder with one folder for each block device.
pub const SYS_BLOCK: &str = "/sys/block";

/// The folder of udev's records of devices.
pub const UDEV_DATA: &str = "/run/udev/data";

/// The text without white space around it; `None` if it is empty or cannot be read.
pub fn text(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim()).filter(|text| !text.is_empty()).map(str::to_string)
}

/// The number in it.
pub fn number<T: FromStr>(path: impl AsRef<Path>) -> Option<T> {
    text(path)?.parse().ok()
}
