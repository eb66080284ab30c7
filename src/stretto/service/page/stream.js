// The controller's news: server-sent events read by fetch, which can send a token, and the requests of an operator.

const KEY = "stretto.token", QUIET_MS = 40000, UNSEEN_MS = 60000, FIRST_MS = 500, LONGEST_MS = 10000;

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (text) => text ? sessionStorage.setItem(KEY, text) : sessionStorage.removeItem(KEY),
};
const headers = () => token.get() ? { Authorization: `Bearer ${token.get()}` } : {};

// the object of an answer; an error has the controller's own words
export async function ask(method, path, body) {
  const said = body === undefined ? {} : { body: JSON.stringify(body) };
  const answer = await fetch(path, { method, headers: { ...headers(), ...(body === undefined ? {} : { "Content-Type": "application/json" }) }, ...said });
  if (answer.ok) return answer.status === 204 ? null : answer.json();
  const error = (await answer.json().catch(() => ({}))).error || {};
  throw Object.assign(new Error(error.message || `status ${answer.status}`), { status: answer.status, leader: error.leader });
}

// Calls on(kind, data) for every event, and state("connecting" | "live" | "lost" | "denied") when that changes. A page
// that nobody sees does not listen: a browser has few connections for one address, and tabs are left open for days.
export function follow(on, state) {
  let control = null, wait = FIRST_MS, timer, unseen;
  async function read() {
    const mine = control = new AbortController();
    let watch;
    const alive = () => { clearTimeout(watch); watch = setTimeout(() => mine.abort(), QUIET_MS); };
    alive();
    try {
      const answer = await fetch("/events", { headers: headers(), cache: "no-store", signal: mine.signal });
      if (answer.status === 401 || answer.status === 403) { if (mine === control) state("denied"); return; }
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        alive();
        const { value, done } = await reader.read();
        if (done) break;
        const parts = (rest + value).split("\n\n");
        rest = parts.pop();
        wait = FIRST_MS;
        for (const part of parts) {
          const kind = /^event: (.*)$/m.exec(part), data = /^data: (.*)$/m.exec(part);
          if (kind && data) on(kind[1], JSON.parse(data[1]));
        }
      }
    } catch (error) {
      if (error instanceof SyntaxError) throw error;
    } finally {
      clearTimeout(watch);
    }
    if (mine !== control) return;  // begun anew, or ended on purpose
    state("lost");
    timer = setTimeout(read, wait);
    wait = Math.min(2 * wait, LONGEST_MS);
  }
  const end = () => { clearTimeout(timer); const old = control; control = null; old?.abort(); };
  const begin = () => { end(); wait = FIRST_MS; state("connecting"); read(); };
  addEventListener("pagehide", end);
  addEventListener("pageshow", (e) => { if (e.persisted) begin(); });
  document.addEventListener("visibilitychange", () => {
    clearTimeout(unseen);
    if (document.hidden) unseen = setTimeout(end, UNSEEN_MS);
    else if (control === null) begin();
  });
  begin();
  return begin;
}
