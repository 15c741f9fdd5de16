// hyperbee (key/value B-tree in one hypercore, single writer) replicated by corestore over TCP; its stream is Noise + secretstream.
import net from 'node:net'
import Corestore from 'corestore'
import Hyperbee from 'hyperbee'
import { N, KEYS, LIVE, BATCH, workload, key, finalRows, checkRow, now, ns, emit, waitFor, maxrssKb, role, dir, port, info, liveRow, liveLoop } from './workload.mjs'

const store = new Corestore(dir)
const link = (sock, initiator) => { sock.setNoDelay(true); const s = store.replicate(initiator); s.on('error', () => {}); sock.on('error', () => {}); sock.pipe(s).pipe(sock) }
const opts = { keyEncoding: 'utf-8', valueEncoding: 'json' }

if (role === 'A') {
  const core = store.get({ name: 'bench' }); const bee = new Hyperbee(core, opts); await bee.ready()
  const w = workload()
  const t = now()
  if (BATCH === 1) for (const [k, r] of w) await bee.put(k, r)
  else for (let s = 0; s < N; s += BATCH) { const b = bee.batch(); for (const [k, r] of w.slice(s, s + BATCH)) await b.put(k, r); await b.flush() }
  emit({ author_s: now() - t })
  await new Promise(resolve => net.createServer(s => link(s, false)).listen(+port, '127.0.0.1', resolve))
  emit({ ready: { key: core.key.toString('hex'), length: core.length, bytes: core.byteLength } })
  await waitFor('live')
  await liveLoop(j => bee.put(key(j), liveRow(j)))
  emit({ live_done: 1 }); await waitFor('quit'); await store.close(); process.exit(0)
} else {
  await store.ready()
  emit({ up: 1, rss_kb: maxrssKb() }); await waitFor('go')
  const t = now()
  const core = store.get({ key: Buffer.from(info.key, 'hex') }); const bee = new Hyperbee(core, opts); await bee.ready()
  link(net.connect(+port, '127.0.0.1'), true)
  const range = core.download({ start: 0, end: info.length, linear: true })
  await range.done()
  if (core.contiguousLength < info.length) throw new Error('not contiguous')
  const dt = now() - t; const t1 = now()
  const want = finalRows(); let n = 0
  for await (const { key: k, value } of bee.createReadStream()) { checkRow(want, k, value); n++ }
  if (n !== KEYS) throw new Error('rows ' + n)
  emit({ catchup_s: dt, verify_s: now() - t1, rss_kb: maxrssKb() })
  core.download({ start: info.length, end: -1 })
  const lat = []; let busy = false; let again = false
  await new Promise(resolve => {
    const look = async () => {
      if (busy) { again = true; return }
      busy = true
      do {
        again = false
        while (lat.length < LIVE) {
          const v = (await bee.get(key(lat.length))).value
          if (v.title.startsWith('note')) break
          lat.push(Number(ns() - BigInt(v.title)) / 1e6)
        }
      } while (again)
      busy = false
      if (lat.length === LIVE) resolve()
    }
    core.on('append', look)
  })
  emit({ lat_ms: lat }); await waitFor('quit'); await store.close(); process.exit(0)
}
