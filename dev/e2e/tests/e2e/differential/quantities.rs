//! Texts of quantities: legal, exotic and wrong ones.

use sluice_e2e::random::Random;
use sluice_engine::Quantity;
use sluice_engine::quantity::{NANOS_PER_UNIT, QuantityError};

use crate::differential::report::Report;
use crate::differential::server::Server;

/// Texts in which parsers differ.
const EXOTIC: [&str; 98] = [
    "0",
    "00",
    "-0",
    "+0",
    "0.0",
    "0Ki",
    "0m",
    "0e5",
    ".",
    "-.",
    "+",
    "-",
    "0.9999",
    "2.9999999",
    "+1",
    "007",
    "1.0",
    "1.",
    ".5",
    "-.5",
    "+.5",
    "1.500",
    "1.123",
    "1.1234",
    "0.0005",
    "0.1m",
    "0.1n",
    "3.001n",
    "-0.1n",
    "0.00000012345",
    "100.035k",
    "12E",
    "1001E",
    "1E3",
    "1E+3",
    "1e0",
    "1e1",
    "1.2e3",
    "1.1E-9",
    "5e-10",
    "1e-30",
    "1e19",
    "8Ei",
    "9Ei",
    "16Ei",
    "-9Ei",
    "9223372036854775807Ki",
    "1000Ki",
    "1024Ki",
    "1.5Ki",
    "0.1Ki",
    "123.456Mi",
    "0.025Ti",
    ".001Ki",
    "1.000001Ki",
    ".000000000001Ki",
    "0.000Gi",
    "999999999999999999",
    "1234567890123456789",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "92233720368547758070",
    "",
    " ",
    " 1",
    "1 ",
    " 1Gi ",
    "1 Gi",
    "abc",
    "1K",
    "1ki",
    "1mi",
    "1i",
    "1B",
    "1GB",
    "1Gib",
    "1Zi",
    "1Y",
    "1kk",
    "1mKi",
    "1m1",
    "1+3",
    "--1",
    "+-1",
    "1.1.1",
    "1,000",
    "1_000",
    "0x10",
    "NaN",
    "Inf",
    "1e",
    "1E+",
    "1e3.5",
    "k",
    "Ki",
    "Pi",
    "e-10",
];

const SUFFIXES: [&str; 20] = [
    "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "K", "ki", "Zi", "p",
];

/// Any text a user may write as an amount.
pub fn any_text(random: &mut Random) -> String {
    match random.below(100) {
        0..25 => random.pick(&EXOTIC).to_owned(),
        25..45 => random.between(0, 2000).to_string(),
        45..60 => {
            let nanos = random.between(0, 10_000) * random.pick(&[1, 1_000, 1_000_000, NANOS_PER_UNIT]);
            exact_text(random, nanos)
        }
        _ => composed(random),
    }
}

/// Like [`any_text`], but mostly an amount that no rule refuses.
pub fn mostly_legal_text(random: &mut Random) -> String {
    if random.chance(85) {
        let nanos = random.between(0, 4096) * NANOS_PER_UNIT * random.pick(&[1, 1, 1000, 1 << 20]);
        exact_text(random, nanos)
    } else {
        any_text(random)
    }
}

fn composed(random: &mut Random) -> String {
    let mut text = random.pick(&["", "", "", "", "-", "+"]).to_owned();
    let digits = random.pick(&[0, 1, 1, 2, 3, 3, 4, 6, 9, 12, 17, 18, 19, 20]);
    (0..digits).for_each(|_| text.push(random.pick(&['0', '1', '2', '5', '7', '9'])));
    if random.chance(35) {
        text.push('.');
        let digits = random.pick(&[0, 1, 1, 2, 3, 3, 6, 9, 10, 14]);
        (0..digits).for_each(|_| text.push(random.pick(&['0', '0', '1', '4', '5', '8'])));
    }
    if random.chance(20) {
        let exponent = random.between(-15, 12);
        text.push_str(&format!(
            "{}{}{exponent}",
            random.pick(&['e', 'E']),
            if random.chance(10) { "+" } else { "" }
        ));
    } else {
        text.push_str(random.pick(&SUFFIXES));
    }
    text
}

/// One of the ways to write exactly this amount.
pub fn exact_text(random: &mut Random, nanos: i128) -> String {
    let units = nanos / NANOS_PER_UNIT;
    if nanos % NANOS_PER_UNIT == 0 && random.chance(50) {
        let (suffix, power) = random.pick(&[("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40)]);
        let quarters = units * 4 / (1_i128 << power);
        if quarters != 0 && quarters * (1 << power) == units * 4 {
            let fraction = ["", ".25", ".5", ".75"][usize::try_from(quarters.abs() % 4).unwrap()];
            return format!("{}{fraction}{suffix}", quarters / 4);
        }
    }
    let (suffix, power) = random.pick(&[
        ("n", 0),
        ("u", 3),
        ("m", 6),
        ("m", 6),
        ("", 9),
        ("", 9),
        ("k", 12),
        ("M", 15),
        ("e3", 12),
        ("e-2", 7),
    ]);
    let scale = 10_i128.pow(power);
    let fraction = format!("{:0width$}", nanos % scale, width = power as usize);
    match fraction.trim_end_matches('0') {
        _ if power == 0 => format!("{nanos}{suffix}"),
        "" => format!("{}{suffix}", nanos / scale),
        rest => format!("{}.{rest}{suffix}", nanos / scale),
    }
}

/// Whether a text is refused here only because of a limit that Kubernetes does not have, by design.
pub const fn is_beyond_our_limits(error: QuantityError) -> bool {
    matches!(error, QuantityError::Exponent | QuantityError::TooLarge | QuantityError::TooLong)
}

/// The amount as the server stores it: it rounds amounts in resource lists away from zero to thousandths.
pub const fn stored(amount: Quantity) -> Quantity {
    const MILLI: i128 = NANOS_PER_UNIT / 1000;
    let (whole, rest) = (amount.nanos() / MILLI * MILLI, amount.nanos() % MILLI);
    if rest == 0 { amount } else { Quantity::from_nanos(whole + rest.signum() * MILLI, amount.format()) }
}

/// Compares the text that the server answers with for `sent`; `None` if it means the same.
pub fn echo_difference(sent: &str, ours: Quantity, echoed: &str) -> Option<String> {
    let ours = stored(ours);
    // The server stores the canonical text and answers with what it reads from it: `1.5Ki` as a decimal `1536`.
    let canonical = ours.to_string().parse().map(|again: Quantity| again.to_string());
    // Servers up to 1.37 lose the magnitude of decimal amounts that have no suffix (`docs/quota-semantics.md`,
    // *Writing*).
    let unprintable = ours.nanos().abs() >= 1000 * 10_i128.pow(18) * NANOS_PER_UNIT;
    match Quantity::parse_json_text(echoed) {
        _ if unprintable => None,
        Ok(theirs) if theirs != ours => Some(format!("{sent:?}: ours {ours}, the server's {echoed}")),
        // A text that came back changed is the canonical one.
        Ok(_) if echoed != sent.trim() && canonical.as_deref() != Ok(echoed) => {
            Some(format!("{sent:?}: canonical text ours {canonical:?}, the server's {echoed}"))
        }
        Ok(_) => None,
        Err(error) => Some(format!("{sent:?}: the server's text {echoed:?} is unreadable: {error}")),
    }
}

/// One text as the limit of a resource that need not be a whole number.
pub async fn compare(server: &Server, report: &Report, path: &str, random: &mut Random) {
    let text = any_text(random);
    let quoted = serde_json::to_string(&text).unwrap();
    let body =
        format!(r#"{{"metadata":{{"name":"q"}},"spec":{{"hard":{{"requests.example.com/x":{quoted}}}}}}}"#);
    let theirs = server.create(path, body, true).await;
    let ours = Quantity::parse_json_text(&text);
    match (&ours, &theirs) {
        (Err(error), _) if is_beyond_our_limits(*error) => report.passed_over("quantity: beyond our limits"),
        (Err(_), Err(refusal)) if refusal.code == 400 => report.agreed("quantity: both unreadable"),
        (Ok(amount), Err(refusal)) if refusal.code == 422 && amount.is_negative() => {
            report.agreed("quantity: both negative");
        }
        (Ok(amount), Ok(answer)) if !amount.is_negative() => {
            let answer: serde_json::Value = serde_json::from_str(answer).unwrap();
            let echoed = answer["spec"]["hard"]["requests.example.com/x"].as_str().unwrap();
            match echo_difference(&text, *amount, echoed) {
                None => report.agreed("quantity: same amount"),
                Some(difference) => report.disagreed(&format!("quantity {difference}")),
            }
        }
        _ => report.disagreed(&format!("quantity {text:?}: ours {ours:?}, the server's {theirs:?}")),
    }
}
