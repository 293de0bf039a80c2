//! workload x HTTP: real clients, every byte verified.
//! Must not know: anything of the server but HTTP.
