//! Scenario -> run -> report.
//!
//! A scenario is data (`scenarios/*.toml`): disks, memory, catalogue, load, the arms to compare, an axis to
//! sweep, the published values and the checks. A runner turns it into rows, one a run of one arm; the checks
//! are arithmetic over rows; the report is drawn from the rows alone, so a run made elsewhere renders here.
//!
//! The live runner starts everything as a process and talks to it by command line and JSON: the software
//! disk, the daemon and the load are the same `seekless` binary that runs the lab, the servers are the
//! distribution's. Arms are run alternately inside one run, forwards and then backwards, so that drift of the
//! machine hits all of them alike.
//!
//! The simulating runner does the same with `seekless-lab sim` processes, in virtual time.
//!
//! Must not know: the other applications (daemon, vdisk, load) other than as processes.

pub mod against;
pub mod chart;
pub mod check;
pub mod cli;
pub mod compare;
mod demo;
mod environment;
pub mod file_server;
mod guard;
mod live;
mod memory_group;
pub mod metric;
mod nearest;
pub mod plan;
mod process;
pub mod record;
pub mod report;
pub mod results;
mod row;
pub mod scenario;
pub mod server;
pub mod sheet;
mod sim;
mod small_files;
mod terminal;
mod tools;
pub mod trees;
