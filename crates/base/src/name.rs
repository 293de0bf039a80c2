use serde::{Deserialize, Serialize};

/// Which file, as `fstat` tells it. Two descriptors of one file have one `FileId`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileId {
    /// Device number of the file system.
    pub dev: u64,
    /// Inode number on it.
    pub ino: u64,
}

/// A word that names none of the values it could.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown name; known are {known}")]
pub struct UnknownName {
    /// The words that do, with commas between.
    pub known: &'static str,
}

/// The words of an enum: its values in order, each with the word that people write and reports print, and
/// others that are understood as well.
///
/// ```
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// enum Order { Fifo, Sweep }
/// seekless_base::words! { Order: Fifo = "fifo", Sweep = "sweep" | "elevator" }
///
/// assert_eq!("elevator".parse(), Ok(Order::Sweep));
/// assert_eq!(Order::Sweep.to_string(), "sweep");
/// assert_eq!("up".parse::<Order>().unwrap_err().known, "fifo, sweep");
/// ```
#[macro_export]
macro_rules! words {
    ($kind:ident: $first:ident = $word:literal $(| $other:literal)*
        $(, $next:ident = $words:literal $(| $others:literal)*)* $(,)?) => {
        impl $kind {
            /// Every value, in order.
            pub const ALL: [$kind; [$word $(, $words)*].len()] = [$kind::$first $(, $kind::$next)*];

            /// The word that people write, and that reports print.
            pub const fn name(self) -> &'static str {
                match self {
                    $kind::$first => $word,
                    $($kind::$next => $words,)*
                }
            }
        }

        impl core::fmt::Display for $kind {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl core::str::FromStr for $kind {
            type Err = $crate::UnknownName;

            fn from_str(word: &str) -> Result<$kind, $crate::UnknownName> {
                match word {
                    $word $(| $other)* => Ok($kind::$first),
                    $($words $(| $others)* => Ok($kind::$next),)*
                    _ => Err($crate::UnknownName { known: concat!($word $(, ", ", $words)*) }),
                }
            }
        }
    };
}
