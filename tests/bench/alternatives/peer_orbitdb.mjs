// @orbitdb/core keyvalue-indexed on helia + libp2p (TCP, noise, yamux, gossipsub), LevelDB blockstore on disk.
import { createOrbitDB, IPFSAccessController, KeyValueIndexed } from '@orbitdb/core'
import { createHelia } from 'helia'
import { createLibp2p } from 'libp2p'
import { tcp } from '@libp2p/tcp'
import { noise } from '@chainsafe/libp2p-noise'
import { yamux } from '@chainsafe/libp2p-yamux'
import { identify } from '@libp2p/identify'
import { gossipsub } from '@libp2p/gossipsub'
import { LevelBlockstore } from 'blockstore-level'
import { multiaddr } from '@multiformats/multiaddr'
import { N, KEYS, LIVE, workload, key, row, finalRows, checkRow, now, ns, emit, waitFor, maxrssKb, role, dir, port, info, liveRow, liveLoop } from './workload.mjs'

const libp2p = await createLibp2p({
  addresses: { listen: [`/ip4/127.0.0.1/tcp/${role === 'A' ? port : 0}`] },
  transports: [tcp()], connectionEncrypters: [noise()], streamMuxers: [yamux()],
  services: { identify: identify(), pubsub: gossipsub({ allowPublishToZeroTopicPeers: true }) }
})
const blockstore = new LevelBlockstore(dir + '/blocks'); await blockstore.open()
const ipfs = await createHelia({ libp2p, blockstore })
const orbitdb = await createOrbitDB({ ipfs, directory: dir + '/orbitdb', id: role })
const Database = KeyValueIndexed()

if (role === 'A') {
  const db = await orbitdb.open('bench', { type: 'keyvalue', Database, AccessController: IPFSAccessController({ write: ['*'] }) })
  const w = workload()
  const t = now()
  for (const [k, r] of w) await db.put(k, r)
  emit({ author_s: now() - t })
  const heads = await db.log.heads()
  emit({ ready: { address: String(db.address), peer: libp2p.getMultiaddrs().map(String), head: heads[0].hash } })
  await waitFor('live')
  await liveLoop(j => db.put(key(j), liveRow(j)))
  emit({ live_done: 1 }); await waitFor('quit'); process.exit(0)
} else {
  emit({ up: 1, rss_kb: maxrssKb() }); await waitFor('go')
  const t = now()
  await libp2p.dial(multiaddr(info.peer[0]))
  const db = await orbitdb.open(info.address, { type: 'keyvalue', Database })
  const lat = []; let live = false; let done
  await new Promise(resolve => {
    db.events.on('update', e => {
      if (live) { lat.push(Number(ns() - BigInt(e.payload.value.title)) / 1e6); if (lat.length === LIVE) done() }
      else if (e.hash === info.head) resolve()
    })
  })
  const dt = now() - t; const t1 = now()
  const want = finalRows(); let n = 0
  for await (const { key: k, value } of db.iterator()) { checkRow(want, k, value); n++ }
  if (n !== KEYS) throw new Error('rows ' + n)
  live = true
  const all = new Promise(resolve => { done = resolve })
  emit({ catchup_s: dt, verify_s: now() - t1, rss_kb: maxrssKb() })
  await all
  emit({ lat_ms: lat }); await waitFor('quit'); process.exit(0)
}
