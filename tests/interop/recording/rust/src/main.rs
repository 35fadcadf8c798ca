//! Does what users of the Rust client do, one kind after the other: a kind is a line on stdin, "done KIND" or
//! "failed KIND why" the answer. The first line names the kinds.
#![recursion_limit = "512"]

use std::io::BufRead;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use rocketmq_client_rust::{
    ClientResult, ClientRuntime, ClientRuntimeConfig, ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus,
    DefaultMQProducer, DefaultMQPushConsumer, MQPushConsumer, MessageListenerConcurrently,
};
use rocketmq_model::common::message::message_ext::MessageExt;
use rocketmq_model::common::message::message_single::Message;
use rocketmq_runtime::{RuntimeConfig, RuntimeOwner};

const TOPIC: &str = "recorded";
const BODY: &[u8] = b"recorded body";
const TIMEOUT_MS: u64 = 20_000;
const KINDS: [&str; 13] = [
    "batch", "chinese-key", "compressed", "delay-level", "emoji-property", "json-property", "many-properties", "one-way",
    "plain", "push", "push-sends-back", "tag", "tag-and-keys",
];

struct Listener {
    got: Arc<AtomicUsize>,
    sends_back: bool,
}

impl MessageListenerConcurrently for Listener {
    fn consume_message(
        &self,
        messages: &[&MessageExt],
        _context: &ConsumeConcurrentlyContext,
    ) -> ClientResult<ConsumeConcurrentlyStatus> {
        let first = self.got.fetch_add(messages.len(), Ordering::SeqCst) == 0;
        Ok(if first && self.sends_back {
            ConsumeConcurrentlyStatus::ReconsumeLater
        } else {
            ConsumeConcurrentlyStatus::ConsumeSuccess
        })
    }
}

fn message(tags: &str, keys: &[&str]) -> Message {
    let mut one = Message::builder().topic(TOPIC).body_slice(BODY);
    if !tags.is_empty() {
        one = one.tags(tags);
    }
    if !keys.is_empty() {
        one = one.keys(keys.iter().map(|key| key.to_string()).collect::<Vec<_>>());
    }
    one.build_unchecked()
}

fn with(properties: &[(&str, &str)]) -> Message {
    let mut one = Message::builder().topic(TOPIC).body_slice(BODY);
    for (name, value) in properties {
        one = one.raw_property(*name, *value).expect("a name and a value");
    }
    one.build_unchecked()
}

async fn consume(
    runtime: &Arc<ClientRuntime>, namesrv: &str, producer: &mut DefaultMQProducer, group: &str, sends_back: bool,
) -> ClientResult<()> {
    let got = Arc::new(AtomicUsize::new(0));
    let mut one = DefaultMQPushConsumer::builder(runtime.clone())
        .consumer_group(group.to_string())
        .name_server_addr(namesrv.to_string())
        .build();
    one.subscribe(TOPIC, "*").await?;
    one.register_message_listener_concurrently(Listener { got: got.clone(), sends_back });
    one.start().await?;
    for _ in 0..30 {
        if got.load(Ordering::SeqCst) >= 2 {
            break;
        }
        producer.send_with_timeout(message("TagA", &[]), TIMEOUT_MS).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    tokio::time::sleep(Duration::from_secs(7)).await; // offsets are sent every five seconds
    one.shutdown().await;
    Ok(())
}

async fn act(
    kind: &str, runtime: &Arc<ClientRuntime>, namesrv: &str, producer: &mut DefaultMQProducer,
) -> ClientResult<()> {
    let one = match kind {
        "plain" => message("", &[]),
        "tag" => message("TagA", &[]),
        "tag-and-keys" => message("TagA", &["order-1", "order-2"]),
        "chinese-key" => message("标签", &["订单-42", "键"]),
        "emoji-property" => with(&[("mood", "\u{1F600} fine")]),
        "json-property" => with(&[("trace", "{\"id\": \"a\\b\", \"hops\": [1, 2]}")]),
        "many-properties" => with(&[("first", "1"), ("second", "2"), ("third", "3"), ("fourth", "4"), ("fifth", "5")]),
        "delay-level" => Message::builder().topic(TOPIC).body_slice(BODY).delay_level(3).build_unchecked(),
        "compressed" => Message::builder().topic(TOPIC).body_slice(&[0; 20_000]).build_unchecked(),
        "one-way" => return producer.send_oneway(message("", &[])).await,
        "batch" => {
            let batch = vec![message("TagA", &[]), message("TagB", &["键"]), message("", &[])];
            return producer.send_batch(batch).await.map(|_| ());
        }
        "push" => return consume(runtime, namesrv, producer, "recorded_push", false).await,
        "push-sends-back" => return consume(runtime, namesrv, producer, "recorded_push_back", true).await,
        _ => unreachable!("kinds are those of KINDS"),
    };
    producer.send_with_timeout(one, TIMEOUT_MS).await.map(|_| ())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let namesrv = std::env::args().nth(1).expect("the name server's address");
    let owner = RuntimeOwner::plan(RuntimeConfig { thread_name: "kinds".into(), ..Default::default() })?.build()?;
    let telemetry =
        rocketmq_observability::install_global(&rocketmq_observability::TelemetryBootstrapConfig::default())?;
    let runtime = ClientRuntime::try_new(
        owner.root_context().component("client"), ClientRuntimeConfig::default(), telemetry.handle(),
    )?;
    let mut producer = DefaultMQProducer::builder(runtime.clone())
        .producer_group("recorded_producer".to_string())
        .name_server_addr(namesrv.clone())
        .build();
    producer.start().await?;
    println!("kinds {}", KINDS.join(" "));
    for kind in std::io::stdin().lock().lines() {
        let kind = kind?;
        match act(&kind, &runtime, &namesrv, &mut producer).await {
            Ok(()) => println!("done {kind}"),
            Err(error) => println!("failed {kind} {}", error.to_string().replace('\n', " ")),
        }
    }
    std::process::exit(0);
}
