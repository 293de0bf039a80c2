//! `--coordinate`.

use crate::study::coordinate::Coordination;
use crate::study::coordinate::steer::SteerParams;
use seekless_base::Fault;
use seekless_levels::coordinate::pfc::PfcParams;

/// Reads the name of a coordinator. PFC is to the letter of its paper; its actions alone are those of the
/// paper's Figure 7.
pub(super) fn parse(name: &str) -> Result<Coordination, Fault> {
    let pfc = PfcParams::default();
    match name.trim() {
        "none" => Ok(Coordination::None),
        "du" => Ok(Coordination::Du),
        "pfc" => Ok(Coordination::Pfc(pfc)),
        "pfc-bypass" => Ok(Coordination::Pfc(PfcParams { bypass: true, readmore: false, ..pfc })),
        "pfc-readmore" => Ok(Coordination::Pfc(PfcParams { bypass: false, readmore: true, ..pfc })),
        "steer" => Ok(Coordination::Steer(SteerParams::default())),
        "demand-first" => Ok(Coordination::Steer(SteerParams { trials: false, ..SteerParams::default() })),
        other => Err(Fault::usage(format!(
            "no coordinator is called `{other}`; there are none, du, pfc, pfc-bypass, pfc-readmore, steer, demand-first"
        ))),
    }
}
