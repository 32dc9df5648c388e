// A member of a group, or a producer, that says on standard output what happens to it: one JSON object a line,
// named as those of Kafka's VerifiableConsumer.
const { Kafka, logLevel } = require('kafkajs')

const options = {}
for (let n = 2; n < process.argv.length; n += 2) options[process.argv[n].slice(2)] = process.argv[n + 1]
const kafka = new Kafka({ clientId: options.client, brokers: options.servers.split(','), logLevel: logLevel.NOTHING })

function tell(name, partitions) {
  console.log(JSON.stringify({ name, partitions }))
}

async function produce() {
  const producer = kafka.producer()
  await producer.connect()
  const messages = []
  for (let n = 0; n < Number(options.produce); n++) messages.push({ key: `key-${n}`, value: `key-${n}` })
  await producer.send({ topic: options.topic, messages })
  await producer.disconnect()
}

async function consume() {
  let owned = []
  const revoke = () => {
    if (owned.length) tell('partitions_revoked', owned)
    owned = []
  }
  const consumer = kafka.consumer({
    groupId: options.group,
    sessionTimeout: 20000,
    heartbeatInterval: 100,
    maxWaitTimeInMs: 100,
    retry: { initialRetryTime: 100, retries: 50 }
  })
  consumer.on(consumer.events.REBALANCING, revoke)
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    revoke()
    for (const [topic, numbers] of Object.entries(payload.memberAssignment)) {
      for (const partition of numbers) owned.push({ topic, partition })
    }
    tell('partitions_assigned', owned)
  })
  await consumer.connect()
  await consumer.subscribe({ topic: options.topic, fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch }) => {
      const { topic, partition } = batch
      const [minOffset, maxOffset] = [Number(batch.firstOffset()), Number(batch.lastOffset())]
      tell('records_consumed', [{ topic, partition, minOffset, maxOffset }])
      await consumer.commitOffsets([{ topic, partition, offset: String(maxOffset + 1) }])
    }
  })
  process.on('SIGTERM', async () => {
    consumer.pause([{ topic: options.topic }])
    revoke() // before it leaves: others may have its partitions right after that
    await consumer.disconnect()
    process.exit(0)
  })
}

const work = options.produce ? produce : consume
work().catch((error) => {
  console.error(error)
  process.exit(1)
})
