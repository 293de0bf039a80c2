//! A wrong description is refused with one line that names what is wrong.

use seekless_model::drive::catalogue;

const GOOD: &str = include_str!("../../../drives/wd-red-1tb.toml");

fn refused(from: &str, to: &str, why: &str) {
    assert!(GOOD.contains(from), "the test is stale: `{from}` is not in the file");
    let message = catalogue::parse(&GOOD.replacen(from, to, 1)).expect_err(to).to_string();
    println!("{message}");
    assert!(message.contains(why), "`{to}`: {message}");
    assert!(!message.contains('\n'), "more than one line: {message}");
}

#[test]
fn wrong_fields_are_named() {
    assert!(catalogue::parse(GOOD).is_ok());
    refused("rpm = 5400.0", "rpn = 5400.0", "unknown field `rpn`");
    refused("[buffer]", "[bufer]", "bufer");
    refused("resume_on_hit = true", "resume_on_hit = true\nlook_back = 1", "unknown field `look_back`");
    refused("rpm = 5400.0", "rpm = -1.0", "`rpm`");
    refused("rpm = 5400.0", "rpm = nan", "`rpm`");
    refused("rpm = 5400.0", "rpm = \"fast\"", "line");
    refused("heads = 2", "heads = 0", "`heads`");
    refused("sectors = 1953525168", "sectors = 9953525168", "`sectors`");
    refused("depth = 32", "depth = 0", "`queue.depth`");
    refused("order = \"sptf\"", "order = \"clook\"", "clook");
    refused("segments = 128", "segments = 0", "`buffer.segments`");
    refused("first_cylinder = 0", "first_cylinder = 7", "zone 0");
    refused("read_miss_ms = 0.3", "read_miss_ms = -0.3", "`electronics.read_miss_ms`");
    refused("bus_mb_per_s = 500.0", "bus_mb_per_s = 0.0", "`electronics.bus_mb_per_s`");
    refused("name = \"wd-red-1tb\"", "name = \"WD Red\"", "`name`");
    refused("  [1, ", "  [0, ", "`seek.table`");
    refused("rpm = 5400.0", "rpm = ", "line");
    refused("heads = 2\n", "", "missing field `heads`");
}

#[test]
fn an_empty_file_is_refused() {
    assert!(catalogue::parse("").is_err());
}
