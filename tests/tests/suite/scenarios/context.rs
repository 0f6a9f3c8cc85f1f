//! Long conversations.

use super::{PLAIN, Scenario, check};
use rpc::v1::{self, prompt_part::Kind};

#[tokio::test]
async fn compact() {
    check(&Scenario {
        says: &[
            |prompt| prompt.text = "@text one".into(),
            |prompt| {
                prompt.parts.push(Kind::Compaction(v1::CompactionPart {}).into());
            },
            |prompt| prompt.text = "@text after".into(),
        ],
        expected: &[
            "user: text(@text one)",
            "build stop: text(one)",
            "user: compaction(auto=false)",
            "compaction stop summary: text(## Objective)",
            "user: text(@text after)",
            "build stop: text(after)",
        ],
        ..PLAIN
    })
    .await;
}

#[tokio::test]
async fn autocompact() {
    check(&Scenario {
        says: &[
            |prompt| prompt.text = "@text first".into(),
            |prompt| prompt.text = "@usage input=90000 cache_read=5000\n@text big".into(),
            |prompt| prompt.text = "@text on".into(),
        ],
        expected: &[
            "user: text(@text first)",
            "build stop: text(first)",
            "user: text(@usage input=90000 cache_read=5000)",
            "build stop: text(big)",
            "user: compaction(auto=true)",
            "compaction stop summary: text(## Objective)",
            "user: told(Continue if you have next steps, or stop and ask for clarifi)",
            "build stop: text(I am Flotilla's scripted model, not a real one: no model key)",
            "user: text(@text on)",
            "build stop: text(on)",
        ],
        ..PLAIN
    })
    .await;
}

#[tokio::test]
async fn overflow() {
    check(&Scenario {
        says: &[
            |prompt| prompt.text = "@text first".into(),
            |prompt| prompt.text = "@status 413 times=1\n@text recovered".into(),
        ],
        expected: &[
            "user: text(@text first)",
            "build stop: text(first)",
            "user: text(@status 413 times=1)",
            "build ContextOverflowError: ",
            "user: compaction(auto=true)",
            "compaction stop summary: text(## Objective)",
            "user: text(@status 413 times=1)",
            "build stop: text(recovered)",
        ],
        ..PLAIN
    })
    .await;
}
