//! `seekless doctor`.
use crate::cli::DoctorArgs;
use seekless_units::{Exit, Fault};
pub(crate) fn run(_args: &DoctorArgs) -> Result<Exit, Fault> {
    Ok(Exit::Ok)
}
