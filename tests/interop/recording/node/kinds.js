// Does what users of Node's ali-ons do, one kind after the other: a kind is a line on stdin, "done KIND" or
// "failed KIND why" the answer. The first line names the kinds.
'use strict';

const readline = require('readline');
const httpclient = require('urllib');
const { Consumer, Message, Producer } = require('ali-ons');

const quiet = { info() {}, warn() {}, debug() {}, error(...of) { console.error(...of); } };
const namesrv = process.argv[2];
const TOPIC = 'recorded';
const MESSAGES = 2;
const LONGEST_MS = 30000;
let producer;

function message(change = () => {}, tags = null, body = 'recorded body') {
  const one = new Message(TOPIC, tags, body);
  change(one);
  return one;
}

async function consume(group, filter, sendsBack = false) {
  const consumer = new Consumer({ httpclient, nameSrv: namesrv, consumerGroup: group, logger: quiet });
  let got = 0;
  await new Promise((resolve, reject) => {
    consumer.on('error', error => console.error(error));
    consumer.subscribe(TOPIC, filter, async () => {
      got += 1;
      if (got >= MESSAGES) resolve();
      return sendsBack && got === 1 ? Consumer.ACTION_RETRY : undefined;
    });
    const again = setInterval(() => producer.send(message(() => {}, 'TagA')).catch(reject), 1000);
    setTimeout(resolve, LONGEST_MS).unref();
    consumer.ready().catch(reject);
    setTimeout(() => clearInterval(again), LONGEST_MS).unref();
  });
  await new Promise(resolve => setTimeout(resolve, 6000)); // offsets are sent every five seconds
  await consumer.close();
}

const kinds = {
  'chinese-key': () => producer.send(message(one => { one.keys = [ '订单-42', '键' ]; }, '标签')),
  'delay-level': () => producer.send(message(one => { one.delayTimeLevel = 3; })),
  'json-property': () => producer.send(message(one => { one.properties.trace = '{"id": "a\\b"}'; })),
  'no-wait': () => producer.send(message(one => { one.waitStoreMsgOK = false; })),
  compressed: () => producer.send(message(() => {}, null, Buffer.alloc(20000))),
  ordered: () => producer.send(message(one => { one.shardingKey = 'customer-7'; })),
  plain: () => producer.send(message()),
  push: () => consume('recorded_push', '*'),
  'push-sends-back': () => consume('recorded_push_back', '*', true),
  'push-tags': () => consume('recorded_push_tags', 'TagA || TagB'),
  tag: () => producer.send(message(() => {}, 'TagA')),
  'tag-and-keys': () => producer.send(message(one => { one.keys = [ 'order-1', 'order-2' ]; }, 'TagA')),
};

async function main() {
  producer = new Producer({ httpclient, nameSrv: namesrv, producerGroup: 'recorded_producer', logger: quiet });
  await producer.ready();
  console.log(`kinds ${Object.keys(kinds).join(' ')}`);
  for await (const kind of readline.createInterface({ input: process.stdin })) {
    try {
      await kinds[kind]();
      console.log(`done ${kind}`);
    } catch (error) {
      console.log(`failed ${kind} ${String(error).split('\n')[0]}`);
      console.error(error);
    }
  }
  process.exit(0);
}

main().catch(error => {
  console.error(error);
  process.exit(1);
});
