//! The two curves of a profile as a page that needs nothing else: \[C\]'s Figure 2 for this disk.

use seekless_base::{Fault, Lba, SECTOR_BYTES};
use seekless_output::chart::{Axis, Chart, Mark, Scale, Series, colour, escape};
use seekless_policy::profile::{DiskProfile, RADIUS, StoredProfile};

/// Points drawn along a curve.
const STEPS: u64 = 400;

/// The page.
///
/// # Errors
/// The drawing library's.
pub(crate) fn html(stored: &StoredProfile) -> Result<String, Fault> {
    let seeks = seeks(&stored.profile)?;
    let rates = rates(&stored.profile)?;
    let label = escape(&stored.label);
    let profile = &stored.profile;
    let turn = profile.rotation.map_or("no rotation seen".to_string(), |t| format!("{t} a turn"));
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Profile of {label}</title>\n<style>\
         body{{font-family:sans-serif;margin:2em;max-width:60em}}svg{{max-width:100%;height:auto}}</style></head>\
         <body>\n<h1>{label}</h1>\n<p>{:.1} GB, {turn}, {} command overhead, {} mean seek, {:.1} MB/s on average.</p>\n\
         <h2>Seek time</h2>\n{seeks}\n<h2>Sequential transfer</h2>\n{rates}\n</body></html>\n",
        profile.sectors as f64 * SECTOR_BYTES as f64 / 1e9,
        profile.overhead,
        profile.mean_seek(),
        profile.mean_rate() / 1e6,
    ))
}

fn seeks(profile: &DiskProfile) -> Result<String, Fault> {
    let curve = (1..=STEPS).map(|i| {
        let part = i as f64 / STEPS as f64;
        // Evenly over the square root: the short seeks bend most.
        (part * part * 100.0, profile.seek_over(part * part).as_millis_f64())
    });
    let points = profile
        .seeks
        .iter()
        .map(|p| (f64::from(p.distance) * 100.0 / f64::from(RADIUS), p.time.as_millis_f64()));
    let distance = Axis::new("distance, % of the stroke", Scale::Linear, &plain);
    draw(distance, Axis::new("ms", Scale::Linear, &plain), curve, points)
}

fn rates(profile: &DiskProfile) -> Result<String, Fault> {
    let gb = SECTOR_BYTES as f64 / 1e9;
    let curve = (0..=STEPS).map(|i| {
        let lba = profile.sectors / STEPS * i;
        (lba as f64 * gb, profile.rate_at(Lba(lba)) / 1e6)
    });
    let points = profile.rates.iter().map(|p| (p.lba.0 as f64 * gb, p.bytes_per_second as f64 / 1e6));
    let place = Axis::new("place, GB", Scale::Linear, &plain);
    draw(place, Axis::new("MB/s", Scale::Linear, &plain), curve, points)
}

/// Values at these axes are round.
fn plain(value: f64) -> String {
    format!("{value}")
}

/// A line through the curve and dots at what was measured.
fn draw(
    x: Axis<'_>,
    y: Axis<'_>,
    curve: impl Iterator<Item = (f64, f64)>,
    points: impl Iterator<Item = (f64, f64)>,
) -> Result<String, Fault> {
    let series = |points, mark| Series { name: String::new(), points, colour: colour(0), mark };
    let series = vec![series(curve.collect(), Mark::Line), series(points.collect(), Mark::Dots)];
    Chart { x, y, words: &[], series }.html()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_curves_are_on_the_page() {
        let stored = StoredProfile::new("x", "a <disk>", 0, DiskProfile::assumed(1 << 31));
        let page = html(&stored).unwrap();
        assert_eq!(page.matches("<svg").count(), 2);
        assert!(page.contains("Seek time") && page.contains("MB/s") && page.contains("a &lt;disk&gt;"));
        assert!(
            !page.contains("http://") || page.matches("http").count() == page.matches("www.w3.org").count()
        );
    }
}
