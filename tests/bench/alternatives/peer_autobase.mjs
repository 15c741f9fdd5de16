// autobase (multi-writer hypercores, linearised into a hyperbee view that B builds itself) over TCP; Noise + secretstream.
// FF=1 lets B fast-forward to A's signed view (autobase's default); FF=0 makes B apply every change itself.
import net from 'node:net'
import Corestore from 'corestore'
import Hyperbee from 'hyperbee'
import Autobase from 'autobase'
import { N, KEYS, LIVE, BATCH, workload, key, finalRows, checkRow, now, ns, emit, sleep, waitFor, maxrssKb, role, dir, port, info, liveRow, liveLoop } from './workload.mjs'

const ff = process.env.FF === '1'
const store = new Corestore(dir)
const link = (sock, initiator) => { sock.setNoDelay(true); const s = store.replicate(initiator); s.on('error', () => {}); sock.on('error', () => {}); sock.pipe(s).pipe(sock) }
const handlers = {
  valueEncoding: 'json',
  fastForward: ff,
  open: s => new Hyperbee(s.get('view'), { extension: false, keyEncoding: 'utf-8', valueEncoding: 'json' }),
  apply: async (nodes, view, host) => {
    const b = view.batch({ update: false })
    for (const { value } of nodes) {
      if (value.addWriter) { await host.addWriter(Buffer.from(value.addWriter, 'hex'), { indexer: true }); continue }
      await b.put(value.k, value.r)
    }
    await b.flush()
  }
}

if (role === 'A') {
  const base = new Autobase(store, null, handlers); await base.ready()
  const w = workload()
  const t = now()
  for (let s = 0; s < N; s += BATCH) await base.append(w.slice(s, s + BATCH).map(([k, r]) => ({ k, r })))
  await base.update()
  emit({ author_s: now() - t })
  await new Promise(resolve => net.createServer(s => link(s, false)).listen(+port, '127.0.0.1', resolve))
  emit({ ready: { key: base.key.toString('hex'), version: base.view.version, local: base.local.length, localKey: base.local.key.toString('hex') } })
  await waitFor('live')
  await liveLoop(j => base.append({ k: key(j), r: liveRow(j) }))
  emit({ live_done: 1 }); await waitFor('quit'); await base.close(); process.exit(0)
} else {
  await store.ready()
  emit({ up: 1, rss_kb: maxrssKb() }); await waitFor('go')
  const t = now()
  const base = new Autobase(store, Buffer.from(info.key, 'hex'), handlers); await base.ready()
  link(net.connect(+port, '127.0.0.1'), true)
  if (base.view.version < info.version) {
    await new Promise(resolve => {
      const look = () => { if (base.view.version >= info.version) { base.off('update', look); resolve() } }
      base.on('update', look); look()
    })
  }
  // every change must be on B's disk: fetch whatever of A's writer core and of the view is not here yet
  const core = store.get({ key: Buffer.from(info.localKey, 'hex') }); await core.ready()
  await core.download({ start: 0, end: info.local }).done()
  const dt = now() - t; const t1 = now()
  const want = finalRows(); let n = 0
  for await (const { key: k, value } of base.view.createReadStream()) { checkRow(want, k, value); n++ }
  if (n !== KEYS) throw new Error('rows ' + n)
  emit({ catchup_s: dt, verify_s: now() - t1, rss_kb: maxrssKb() })
  const lat = []; let busy = false; let again = false
  await new Promise(resolve => {
    const look = async () => {
      if (busy) { again = true; return }
      busy = true
      do {
        again = false
        while (lat.length < LIVE) {
          const v = (await base.view.get(key(lat.length))).value
          if (v.title.startsWith('note')) break
          lat.push(Number(ns() - BigInt(v.title)) / 1e6)
        }
      } while (again)
      busy = false
      if (lat.length === LIVE) resolve()
    }
    base.on('update', look)
  })
  emit({ lat_ms: lat }); await waitFor('quit'); await base.close(); process.exit(0)
}
