// Same workload and protocol as peer.py, for the Node peers.
import readline from 'node:readline'
export const N = +(process.env.N || 10000)
export const KEYS = Math.floor(N / 2)
export const LIVE = +(process.env.LIVE || 200)
export const GAP = +(process.env.GAP || 0.02) * 1000
export const BATCH = +(process.env.BATCH || 1)
const ALPH = 'abcdefghijklmnopqrstuvwxyz    '
export function body (k) {
  let x = (Math.imul(k, 2654435761 | 0) + 12345) & 0x7fffffff
  let s = ''
  for (let j = 0; j < 90; j++) { x = (Math.imul(x, 1103515245) + 12345) & 0x7fffffff; s += ALPH[(x >>> 16) % 30] }
  return s
}
export const row = k => ({ i: k, title: `note ${k}`, body: body(k), done: k % 2 === 1, rank: k * 0.5 + 0.25 })
export const key = k => 'r' + String(k % KEYS).padStart(5, '0')
export const workload = () => Array.from({ length: N }, (_, k) => [key(k), row(k)])
export function finalRows () { const m = new Map(); for (let k = N - KEYS; k < N; k++) m.set(key(k), row(k)); return m }
export function checkRow (want, k, v) {
  const w = want.get(k)
  if (!w) throw new Error('unexpected key ' + k)
  for (const c of ['i', 'title', 'body', 'done', 'rank']) if (String(v[c]) !== String(w[c])) throw new Error(`stale ${k}.${c}: ${v[c]} != ${w[c]}`)
}
export const ns = () => process.hrtime.bigint()
export const now = () => Number(process.hrtime.bigint()) / 1e9
export const emit = o => process.stdout.write(JSON.stringify(o) + '\n')
export const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))
const waiters = []; const seen = []
readline.createInterface({ input: process.stdin }).on('line', l => { const w = waiters.shift(); w ? w(l.trim()) : seen.push(l.trim()) })
const nextLine = () => seen.length ? Promise.resolve(seen.shift()) : new Promise(resolve => waiters.push(resolve))
export async function waitFor (word) { for (;;) { const l = await nextLine(); if (l === word) return; if (l === 'quit') process.exit(0) } }
export const maxrssKb = () => process.resourceUsage().maxRSS
export const [role, dir, port, infoArg] = process.argv.slice(2)
export const info = infoArg ? JSON.parse(infoArg) : {}
export const liveRow = j => ({ ...row(j), title: ns().toString() })
export async function liveLoop (write) {            // LIVE writes on a fixed 20 ms grid
  const t0 = now()
  for (let j = 0; j < LIVE; j++) {
    const due = t0 + j * GAP / 1000
    const d = (due - now()) * 1000
    if (d > 0) await sleep(d)
    await write(j)
  }
}
