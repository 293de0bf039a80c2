//! Arms for half and double of every constant of the read path.

use seekless_policy::Constants;
use serde_json::json;

use super::{Arm, Scenario};

/// What a constant is multiplied by, and what that is called.
pub(crate) const FACTORS: [(&str, f64); 2] = [("half", 0.5), ("double", 2.0)];

/// Name of the arm of a constant and a factor's name.
pub(crate) fn arm_name(constant: &str, factor: &str) -> String {
    format!("{constant}, {factor}")
}

/// Adds the arms that `sim.constants` asks for.
///
/// # Errors
/// It names no arm.
pub(super) fn expand(scenario: &mut Scenario) -> Result<(), String> {
    let Some(name) = scenario.sim.constants.clone() else { return Ok(()) };
    if !scenario.arms.iter().any(|arm| arm.name == name) {
        return Err(format!("sim.constants = \"{name}\" names no arm"));
    }
    let constants = json!(Constants::default());
    for (constant, value) in constants.as_object().into_iter().flatten() {
        for (factor, by) in FACTORS {
            let given = match (value.as_u64(), value.as_f64()) {
                (Some(whole), _) => ((whole as f64 * by) as u64).to_string(),
                (None, Some(value)) => (value * by).to_string(),
                (None, None) => continue,
            };
            let sim = vec!["--constant".into(), format!("{constant}={given}")];
            let name_of_arm = arm_name(constant, factor);
            // A results file holds the scenario with its arms.
            if scenario.arms.iter().all(|arm| arm.name != name_of_arm) {
                scenario.arms.push(Arm {
                    name: name_of_arm,
                    like: Some(name.clone()),
                    sim,
                    ..Arm::default()
                });
            }
        }
    }
    Ok(())
}
