//! Flow schemas and priority levels.

use serde_json::Value;

use super::fields::{fill, fill_blank, with, within};

pub(super) fn apply(kind: &str, obj: &mut Value) {
    let Some(spec) = within(obj, "spec") else { return };
    match kind {
        "FlowSchema" => fill_blank(spec, "matchingPrecedence", 1000),
        "PriorityLevelConfiguration" => {
            with(spec, "exempt", |exempt| {
                fill(exempt, "nominalConcurrencyShares", 0);
                fill(exempt, "lendablePercent", 0);
            });
            with(spec, "limited", |limited| {
                fill(limited, "nominalConcurrencyShares", 30);
                fill(limited, "lendablePercent", 0);
                with(limited, "limitResponse", |response| {
                    with(response, "queuing", |queuing| {
                        fill_blank(queuing, "queues", 64);
                        fill_blank(queuing, "handSize", 8);
                        fill_blank(queuing, "queueLengthLimit", 50);
                    });
                });
            });
        }
        _ => {}
    }
}
