//! One row of a run: what one arm measured at one axis value.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One run of one arm.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Row {
    /// The arm.
    pub arm: String,
    /// The axis value.
    pub x: Option<String>,
    /// Which repetition, from 0.
    pub repetition: u32,
    /// Place in the order things were run, from 0.
    pub position: u32,
    /// Numbers by name; [`crate::metric`] has units and meanings.
    pub metrics: BTreeMap<String, f64>,
    /// What a table says beside the numbers, by name: the door, a version, why there are no numbers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub words: BTreeMap<String, String>,
    /// Distributions by name: (value, cumulative share) in rising order.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cdfs: BTreeMap<String, Vec<(f64, f64)>>,
    /// What the parts said themselves, unabridged.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub raw: serde_json::Map<String, serde_json::Value>,
}
