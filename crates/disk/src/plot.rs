//! The two curves of a profile as a page that needs nothing else: \[C\]'s Figure 2 for this disk.

use plotters::prelude::*;
use seekless_policy::profile::{DiskProfile, RADIUS, StoredProfile};
use seekless_units::{Exit, Fault, Lba, SECTOR_BYTES};

const SIZE: (u32, u32) = (820, 360);
/// Points drawn along a curve.
const STEPS: u64 = 400;

/// The page.
///
/// # Errors
/// The drawing library's.
pub(crate) fn html(stored: &StoredProfile) -> Result<String, Fault> {
    let failed = |e: String| Fault::new(Exit::Failed, format!("cannot draw the plot: {e}"));
    let seeks = seeks(&stored.profile).map_err(failed)?;
    let rates = rates(&stored.profile).map_err(failed)?;
    let label = escape(&stored.label);
    let profile = &stored.profile;
    let turn = profile.rotation.map_or("no rotation seen".to_string(), |t| format!("{t} a turn"));
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Profile of {label}</title>\n<style>\
         body{{font-family:sans-serif;margin:2em;max-width:60em}}svg{{max-width:100%;height:auto}}</style></head>\
         <body>\n<h1>{label}</h1>\n<p>{:.1} GB, {turn}, {} command overhead, {} mean seek, {:.1} MB/s on average.</p>\n\
         {seeks}\n{rates}\n</body></html>\n",
        profile.sectors as f64 * SECTOR_BYTES as f64 / 1e9,
        profile.overhead,
        profile.mean_seek(),
        profile.mean_rate() / 1e6,
    ))
}

fn seeks(profile: &DiskProfile) -> Result<String, String> {
    let curve = (1..=STEPS).map(|i| {
        let part = i as f64 / STEPS as f64;
        // Evenly over the square root: the short seeks bend most.
        (part * part * 100.0, profile.seek_over(part * part).as_millis_f64())
    });
    let points = profile
        .seeks
        .iter()
        .map(|p| (f64::from(p.distance) * 100.0 / f64::from(RADIUS), p.time.as_millis_f64()));
    let top = profile.seek_over(1.0).as_millis_f64();
    draw("Seek time", "distance, % of the stroke", "ms", 100.0, top, curve.collect(), points.collect())
}

fn rates(profile: &DiskProfile) -> Result<String, String> {
    let gb = SECTOR_BYTES as f64 / 1e9;
    let whole = profile.sectors as f64 * gb;
    let curve = (0..=STEPS).map(|i| {
        let lba = profile.sectors / STEPS * i;
        (lba as f64 * gb, profile.rate_at(Lba(lba)) / 1e6)
    });
    let points = profile.rates.iter().map(|p| (p.lba.0 as f64 * gb, p.bytes_per_second as f64 / 1e6));
    let top = profile.rates.iter().map(|p| p.bytes_per_second).max().unwrap_or(1) as f64 / 1e6;
    draw("Sequential transfer", "place, GB", "MB/s", whole, top, curve.collect(), points.collect())
}

/// One diagram as SVG: a line through the curve and dots at what was measured.
fn draw(
    title: &str,
    x: &str,
    y: &str,
    x_max: f64,
    y_max: f64,
    curve: Vec<(f64, f64)>,
    points: Vec<(f64, f64)>,
) -> Result<String, String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 20))
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(55)
            .build_cartesian_2d(0.0..x_max.max(1e-9), 0.0..(y_max * 1.1).max(1e-9))
            .map_err(|e| e.to_string())?;
        chart
            .configure_mesh()
            .x_desc(x)
            .y_desc(y)
            .light_line_style(WHITE)
            .draw()
            .map_err(|e| e.to_string())?;
        let blue = RGBColor(31, 119, 180);
        chart.draw_series(LineSeries::new(curve, blue.stroke_width(2))).map_err(|e| e.to_string())?;
        let dots = points.into_iter().map(|p| Circle::new(p, 3, blue.filled()));
        chart.draw_series(dots).map_err(|e| e.to_string())?;
        area.present().map_err(|e| e.to_string())?;
    }
    Ok(svg)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
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
