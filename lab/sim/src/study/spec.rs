//! The `--levels` language: `lru+linux:64MiB,lru+linux:128MiB`, from the application down.

use crate::study::cache::{CAPACITY_BLOCKS_MAX, Replacement};
use crate::study::coordinate::Coordination;
use crate::study::prefetch::Algorithm;
use crate::study::prefetch::amp::AmpParams;
use crate::study::prefetch::linux::{LinuxParams, LinuxRule};
use crate::study::prefetch::ra::RaParams;
use crate::study::prefetch::sarc::SarcParams;
use seekless_base::{Bytes, Fault};

use crate::study::twolevel::LevelSpec;

/// Most levels: more than any storage has, few enough that a slip of the pen is noticed.
const LEVELS_MAX: usize = 8;

fn usage(message: String) -> Fault {
    Fault::usage(message)
}

/// Reads `CACHE[+PREFETCHER]:SIZE` for each level. CACHE is `lru`, `sarc` or `arc`; PREFETCHER is `none`,
/// `ra(P)`, `ra-adaptive(P)`, `linux(MAX)` (PFC's rule), `linux-kernel(MAX)`, `sarc(P/G)` or `amp(P)` (P for
/// the first prefetch of a stream; else it begins with the size of its request), the parenthesis being
/// optional; SIZE is a size (`64MiB`) or a number of blocks (`16384blk`).
///
/// # Errors
/// A name that is not known, a missing or zero size, too many levels.
pub fn parse_levels(text: &str, block_bytes: u64) -> Result<Vec<LevelSpec>, Fault> {
    let levels: Vec<LevelSpec> = text
        .split(',')
        .enumerate()
        .map(|(i, part)| {
            parse_level(part.trim(), block_bytes).map_err(|why| usage(format!("level {}: {why}", i + 1)))
        })
        .collect::<Result<_, _>>()?;
    if levels.len() > LEVELS_MAX {
        return Err(usage(format!("{} levels; at most {LEVELS_MAX} are simulated", levels.len())));
    }
    Ok(levels)
}

fn parse_level(text: &str, block_bytes: u64) -> Result<LevelSpec, String> {
    let Some((algorithms, size)) = text.rsplit_once(':') else {
        return Err(format!("`{text}` has no size; write for example lru+linux:64MiB"));
    };
    let (cache, prefetcher) = algorithms.split_once('+').unwrap_or((algorithms, "none"));
    let replacement = match cache.trim() {
        "lru" => Replacement::Lru,
        "sarc" => Replacement::Sarc,
        "arc" => Replacement::Arc,
        other => return Err(format!("no cache is called `{other}`; there are lru, sarc, arc")),
    };
    let capacity_blocks = match size.trim().strip_suffix("blk") {
        Some(blocks) => blocks.parse::<u64>().map_err(|_| format!("`{size}` is not a number of blocks"))?,
        None => size.parse::<Bytes>().map_err(|e| e.to_string())?.0 / block_bytes,
    };
    if capacity_blocks == 0 {
        return Err(format!(
            "`{size}` is less than one block of {}; a cache holds at least one",
            Bytes(block_bytes)
        ));
    }
    if capacity_blocks > CAPACITY_BLOCKS_MAX {
        return Err(format!("`{size}` is more than {CAPACITY_BLOCKS_MAX} blocks"));
    }
    let prefetch = parse_prefetcher(prefetcher.trim())?;
    Ok(LevelSpec { replacement, prefetch, coordination: Coordination::None, capacity_blocks })
}

/// Reads the name of a prefetcher with its parameters.
///
/// # Errors
/// A name or parameter that is not known.
pub fn parse_prefetcher(text: &str) -> Result<Algorithm, String> {
    let (name, given) = match text.split_once('(') {
        Some((name, rest)) => match rest.strip_suffix(')') {
            Some(inside) => (name, Some(inside)),
            None => return Err(format!("`{text}` lacks a closing parenthesis")),
        },
        None => (text, None),
    };
    let number = |text: &str| match text.trim().parse::<u32>() {
        Ok(n) if (1..=4096).contains(&n) => Ok(n),
        _ => Err(format!("`{text}` in `{name}(...)` is not a number of blocks within 1 and 4096")),
    };
    match name {
        "none" if given.is_none() => Ok(Algorithm::None),
        "ra" | "ra-adaptive" => {
            let mut params = RaParams { adaptive: name == "ra-adaptive", ..RaParams::default() };
            if let Some(given) = given {
                params.degree = number(given)?;
            }
            Ok(Algorithm::Ra(params))
        }
        "linux" | "linux-kernel" => {
            let rule = if name == "linux" { LinuxRule::Window } else { LinuxRule::NewestGroup };
            let mut params = LinuxParams { rule, ..LinuxParams::default() };
            if let Some(given) = given {
                params.group_max = number(given)?;
            }
            Ok(Algorithm::Linux(params))
        }
        "sarc" => {
            let mut params = SarcParams::default();
            if let Some(given) = given {
                let (degree, trigger) = given.split_once('/').unwrap_or((given, "1"));
                params = SarcParams {
                    degree: number(degree)?,
                    trigger_distance: number(trigger)?,
                    ..SarcParams::default()
                };
            }
            Ok(Algorithm::Sarc(params))
        }
        "amp" => {
            let mut params = AmpParams::default();
            if let Some(given) = given {
                params.degree_start = Some(number(given)?);
            }
            Ok(Algorithm::Amp(params))
        }
        other => Err(format!(
            "no prefetcher is called `{other}`; there are none, ra, ra-adaptive, linux, linux-kernel, sarc, amp"
        )),
    }
}

#[cfg(test)]
mod tests {
    use seekless_base::Exit;

    use super::*;

    #[test]
    fn the_language() {
        let levels = parse_levels("lru+linux:64MiB, sarc+sarc(16/8):1000blk,arc:4KiB", 4096).unwrap();
        assert_eq!(levels.len(), 3);
        assert_eq!((levels[0].replacement, levels[0].capacity_blocks), (Replacement::Lru, 16_384));
        assert_eq!(
            levels[1].prefetch,
            Algorithm::Sarc(SarcParams { degree: 16, trigger_distance: 8, ..SarcParams::default() })
        );
        assert_eq!((levels[2].prefetch, levels[2].capacity_blocks), (Algorithm::None, 1));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, why) in [
            ("", "level 1: `` has no size"),
            ("lru+linux:64MiB,lru+linux", "level 2: `lru+linux` has no size"),
            ("lru:0", "less than one block"),
            ("lru:0blk", "less than one block"),
            ("lru:4000B", "less than one block"),
            ("lru:-1blk", "not a number of blocks"),
            ("lru:64M", "ambiguous"),
            ("mru:64MiB", "no cache is called `mru`"),
            ("lru+magic:64MiB", "no prefetcher is called `magic`"),
            ("lru+ra(0):64MiB", "within 1 and 4096"),
            ("lru+ra(4:64MiB", "closing parenthesis"),
            ("lru:9000000TiB", "more than"),
            ("lru:1blk,lru:1blk,lru:1blk,lru:1blk,lru:1blk,lru:1blk,lru:1blk,lru:1blk,lru:1blk", "9 levels"),
        ] {
            let fault = parse_levels(text, 4096).unwrap_err();
            assert!(fault.message.contains(why), "{text}: {}", fault.message);
            assert_eq!(fault.exit, Exit::Usage);
        }
    }
}
