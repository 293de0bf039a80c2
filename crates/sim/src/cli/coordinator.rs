//! `--coordinate` and the options of PFC.

use clap::{Args, ValueEnum};
use seekless_levels::coordinate::Coordination;
use seekless_levels::coordinate::pfc::{LargeRequest, PfcParams};
use seekless_levels::coordinate::steer::SteerParams;
use seekless_study::twolevel::{ServiceRules, Waiting};
use seekless_units::{Exit, Fault, share};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Actions {
    /// Bypass and readmore
    Both,
    /// Bypass only
    Bypass,
    /// Readmore only
    Readmore,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Large {
    /// Longer than half the average, as the paper is written
    Half,
    /// Longer than one and a half times the average
    OneAndHalf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Queues {
    /// A block met again becomes the most recent
    Refresh,
    /// Blocks leave in the order they came
    Fifo,
}

/// How the PFC pseudo code is read.
#[derive(Args, Clone, Debug)]
pub(super) struct PfcArgs {
    /// Which of PFC's actions are used
    #[arg(long, value_enum, default_value = "both")]
    pfc_actions: Actions,
    /// When PFC takes a request of the upper level for large
    #[arg(long, value_enum, default_value = "half")]
    pfc_large: Large,
    /// Length of each of PFC's queues, as a share of its cache
    #[arg(long, default_value_t = 0.1, value_name = "SHARE", value_parser = share)]
    pfc_queue_share: f64,
    /// When PFC's queues are refreshed
    #[arg(long, value_enum, default_value = "refresh")]
    pfc_queues: Queues,
    /// Keep bypass_length within the present request
    #[arg(long)]
    pfc_keep_within_request: bool,
    /// One set of PFC parameters for each file or client
    #[arg(long)]
    pfc_per_context: bool,
}

impl PfcArgs {
    pub(super) fn params(&self) -> Result<PfcParams, Fault> {
        if !(self.pfc_queue_share > 0.0 && self.pfc_queue_share <= 1.0) {
            let given = self.pfc_queue_share;
            return Err(Fault::new(
                Exit::Usage,
                format!("--pfc-queue-share {given} is out of range; write more than 0 and at most 1"),
            ));
        }
        Ok(PfcParams {
            bypass: self.pfc_actions != Actions::Readmore,
            readmore: self.pfc_actions != Actions::Bypass,
            queue_share: self.pfc_queue_share,
            large_request: match self.pfc_large {
                Large::Half => LargeRequest::Half,
                Large::OneAndHalf => LargeRequest::OneAndHalf,
            },
            refresh_on_hit: self.pfc_queues == Queues::Refresh,
            keep_within_request: self.pfc_keep_within_request,
            per_context: self.pfc_per_context,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum WaitingArg {
    /// The whole read that brings its blocks, with what is fetched ahead
    Whole,
    /// Its own blocks; what is fetched ahead is a request of its own behind it
    Own,
    /// The same, and the disk's queue joins the two only under a backlog
    DemandFirst,
}

/// What PFC leaves open about the system it simulates.
#[derive(Args, Clone, Debug)]
pub(super) struct RulesArgs {
    /// What a request that misses waits for, at every level
    #[arg(long, value_enum, default_value = "whole")]
    waiting: WaitingArg,
    /// The lower levels know where a file ends, and fetch nothing behind it
    #[arg(long)]
    file_end_below: bool,
}

impl RulesArgs {
    pub(super) fn rules(&self) -> ServiceRules {
        let waiting = match self.waiting {
            WaitingArg::Whole => Waiting::Whole,
            WaitingArg::Own => Waiting::Own,
            WaitingArg::DemandFirst => Waiting::DemandFirst,
        };
        ServiceRules { waiting, file_end_below: self.file_end_below }
    }
}

/// Reads the name of a coordinator.
pub(super) fn parse(name: &str, pfc: &PfcArgs) -> Result<Coordination, Fault> {
    match name.trim() {
        "none" => Ok(Coordination::None),
        "du" => Ok(Coordination::Du),
        "pfc" => Ok(Coordination::Pfc(pfc.params()?)),
        "pfc-bypass" => Ok(Coordination::Pfc(PfcParams { bypass: true, readmore: false, ..pfc.params()? })),
        "pfc-readmore" => Ok(Coordination::Pfc(PfcParams { bypass: false, readmore: true, ..pfc.params()? })),
        "steer" => Ok(Coordination::Steer(SteerParams::default())),
        "demand-first" => Ok(Coordination::Steer(SteerParams { trials: false, ..SteerParams::default() })),
        other => Err(Fault::new(
            Exit::Usage,
            format!(
                "no coordinator is called `{other}`; there are none, du, pfc, pfc-bypass, pfc-readmore, steer, demand-first"
            ),
        )),
    }
}
