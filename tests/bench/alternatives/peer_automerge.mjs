// automerge-repo: nodefs storage on both sides, websocket server adapter at A, client adapter at B; one document, map "rows".
// STR=text (what a plain JS string assignment makes) or raw (ImmutableString: the value is replaced whole).
import { Repo } from '@automerge/automerge-repo'
import { ImmutableString } from '@automerge/automerge'
import { NodeFSStorageAdapter } from '@automerge/automerge-repo-storage-nodefs'
import { WebSocketServerAdapter, WebSocketClientAdapter } from '@automerge/automerge-repo-network-websocket'
import { WebSocketServer } from 'ws'
import { N, KEYS, LIVE, BATCH, workload, key, finalRows, checkRow, now, ns, emit, sleep, waitFor, maxrssKb, role, dir, port, info, liveRow, liveLoop } from './workload.mjs'

const raw = process.env.STR === 'raw'
const str = s => raw ? new ImmutableString(s) : s
const put = (d, k, r) => {
  if (!d.rows[k]) d.rows[k] = {}
  const o = d.rows[k]
  o.i = r.i; o.title = str(r.title); o.body = str(r.body); o.done = r.done; o.rank = r.rank
}
let pending = 0
class Store extends NodeFSStorageAdapter {              // only counts writes under way
  async save (k, b) { pending++; try { await super.save(k, b) } finally { pending-- } }
}
const storage = new Store(dir)
// repo.flush() can return while a save of the same heads is still being written, so wait for the writes too
const persist = async repo => { do { await repo.flush(); if (pending) await sleep(1) } while (pending) }
const onDisk = async (url, heads) => {                  // a second repo reads the folder
  const again = await new Repo({ storage: new NodeFSStorageAdapter(dir), network: [], peerId: 'C' }).find(url)
  if (again.heads().join() !== heads.join()) throw new Error('not on disk')
}

if (role === 'A') {
  const wss = new WebSocketServer({ port: +port, host: '127.0.0.1', maxPayload: 1 << 30 })
  const repo = new Repo({ storage, network: [new WebSocketServerAdapter(wss)], peerId: 'A', sharePolicy: async () => true })
  const h = repo.create({ rows: {} })
  const w = workload()
  const t = now()
  for (let s = 0; s < N; s += BATCH) {
    h.change(d => { for (const [k, r] of w.slice(s, s + BATCH)) put(d, k, r) })
    if (s / BATCH % 64 === 63) await sleep(0)         // let its own save timers run
  }
  await persist(repo)
  emit({ author_s: now() - t })
  await onDisk(h.url, h.heads())
  emit({ ready: { url: h.url, heads: h.heads() } })
  await waitFor('live')
  await liveLoop(j => h.change(d => put(d, key(j), liveRow(j))))
  emit({ live_done: 1 }); await waitFor('quit'); await repo.flush(); process.exit(0)
} else {
  const repo = new Repo({ storage, network: [], peerId: 'B', sharePolicy: async () => true })
  emit({ up: 1, rss_kb: maxrssKb() }); await waitFor('go')
  const t = now()
  const ad = new WebSocketClientAdapter(`ws://127.0.0.1:${port}`)
  const joined = new Promise(resolve => ad.on('peer-candidate', resolve))
  repo.networkSubsystem.addNetworkAdapter(ad)
  await joined
  const h = await repo.find(info.url)
  const same = () => h.heads().join() === info.heads.join()
  if (!same()) await new Promise(resolve => h.on('heads-changed', () => same() && resolve()))
  await persist(repo)
  const dt = now() - t; const t1 = now()
  const want = finalRows(); let n = 0
  for (const [k, v] of Object.entries(h.doc().rows)) { checkRow(want, k, v); n++ }
  if (n !== KEYS) throw new Error('rows ' + n)
  const dv = now() - t1
  await onDisk(info.url, info.heads)
  emit({ catchup_s: dt, verify_s: dv, rss_kb: maxrssKb() })
  const lat = []
  await new Promise(resolve => {
    h.on('change', ({ doc }) => {
      while (lat.length < LIVE) {
        const title = String(doc.rows[key(lat.length)].title)
        if (title.startsWith('note')) return
        lat.push(Number(ns() - BigInt(title)) / 1e6)
      }
      resolve()
    })
  })
  emit({ lat_ms: lat }); await waitFor('quit'); await repo.flush(); process.exit(0)
}
