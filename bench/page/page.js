"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const report = data.report;
  const byId = (id) => document.getElementById(id);
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const scaled = (us, digits) => us < 1e3 ? [us, digits(us), "µs"] : us < 1e6 ? [us / 1e3, digits(us / 1e3), "ms"] : [us / 1e6, digits(us / 1e6), "s"];
  const unit = (us, digits) => { const [n, d, u] = scaled(us, digits); return n.toFixed(d) + " " + u; };
  const time = (us) => us == null ? "–" : unit(us, (n) => n < 10 ? 2 : n < 100 ? 1 : us < 1e3 ? 1 : 0);
  const count = (n) => n == null ? "–" : Math.round(n).toLocaleString("en");
  const number = (n, digits) => n == null ? "–" : n.toFixed(digits);
  const ratio = (r) => r == null ? "–" : r.toFixed(2) + "×";
  const share = (s) => s == null ? "–" : (s * 100).toFixed(1) + " %";
  const megabytes = (bytes, seconds) => seconds > 0 ? (bytes / 1e6 / seconds).toFixed(1) + " MB/s" : "–";
  const plural = (n, what) => count(n) + " " + what + (n === 1 ? "" : "s");

  // A table of a section: a head, and rows of texts. A cell may be [text, class].
  function table(id, head, rows) {
    if (!rows.length) return;
    const section = byId(id);
    section.hidden = false;
    const element = section.querySelector("table");
    const fill = (row, tag, texts) => {
      for (const text of texts) {
        const cell = document.createElement(tag);
        [cell.textContent, cell.className] = Array.isArray(text) ? text : [text, ""];
        row.append(cell);
      }
    };
    fill(element.createTHead().insertRow(), "th", head);
    const body = element.createTBody();
    for (const { texts, part } of rows) {
      const row = body.insertRow();
      if (part) row.className = "part";
      fill(row, "td", texts);
    }
  }

  // Phases, then all runs that they are the medians of, numbered by name.
  function loads() {
    const seen = {};
    const runs = (report.runs || []).map((run) => {
      seen[run.name] = (seen[run.name] || 0) + 1;
      return { load: run, name: `${run.name}, run ${seen[run.name]}`, part: true };
    });
    return report.phases.map((phase) => ({ load: phase, name: phase.name + (runs.length ? " (median run)" : "") })).concat(runs);
  }

  function facts() {
    const s = report.settings;
    const sizes = (s.sizes || []).length ? s.sizes.map((share) => `${count(share.bytes)} B (${share.percent} %)`).join(", ") : count(s.value_bytes) + " B";
    const keys = (s.key_dist || {}).distribution === "zipf" ? `Zipf, exponent ${s.key_dist.exponent}` : "uniform";
    const rows = [
      ["Build", `version ${report.version}, commit ${report.commit}`],
      ["Begun", new Date(report.started_ms).toISOString()],
      ["Machine", `${report.host.cpu}, ${plural(report.host.cpus, "core")}, Linux ${report.host.kernel}`],
      ["Load", `topic ${s.topic}, ${plural(s.ranges, "range")}, ${plural(s.connections, "connection")}, ${plural(s.keys, "key")} (${keys}), ${plural(s.batch, "record")} a batch, seed ${s.seed}`],
      ["Values", sizes],
      ["Pace", s.pace.loop === "open" ? `open loop, ${s.pace.arrival} arrivals` : `closed loop, ${plural(s.pace.inflight, "unanswered record")} on each connection`],
      ["Time", `${s.seconds} s each, behind ${s.warmup_seconds} s of warm-up`],
    ];
    if (report.server) rows.push(["Node", `commit ${report.server.commit}, ${plural(report.server.shards, "shard")}, sync by ${report.server.sync}`]);
    if (report.floor) rows.push(["Floor", `4 KiB made durable by ${report.floor.before.method}, and an echo of ${report.floor.request_bytes} and ${report.floor.reply_bytes} B; device cache: ${report.floor.device_cache || "unknown"}`]);
    for (const [name, text] of rows) {
      const [term, told] = [document.createElement("dt"), document.createElement("dd")];
      [term.textContent, told.textContent] = [name, text];
      byId("facts").append(term, told);
    }
    if (data.flaw) {
      byId("flaw").hidden = false;
      byId("flaw").textContent = "Not a measurement: " + data.flaw;
    }
  }

  function figures() {
    table("loads",
      ["", "loop", "offered/s", "achieved/s", "records", "throughput", "p50 ÷ floor", "p99 ÷ floor", "flushes/record", "client µs/record", "steal"],
      loads().map(({ load, name, part }) => ({ part, texts: [
        name, load.closed ? "closed" : "open", count(load.offered_rate), load.saturated ? [count(load.achieved_rate) + " saturated", "bad"] : count(load.achieved_rate),
        count(load.records), megabytes(load.bytes, load.seconds), ratio(load.ratios && load.ratios.p50), ratio(load.ratios && load.ratios.p99),
        number(load.flushes_per_record, 3), number(load.client_cpu_us_per_record, 2), share(load.steal)] })));
    const notes = report.phases.filter((phase) => phase.disturbance).map((phase) => {
      const d = phase.disturbance;
      return `${phase.name}: ${plural(d.rolls, "roll")}, ${plural(d.checkpoints, "checkpoint")}; p99.9 within 100 ms of one ${time(d.near.p999_us)} (${plural(d.near.samples, "sample")}), of all others ${time(d.others.p999_us)} (${plural(d.others.samples, "sample")}).`;
    });
    byId("loads").querySelector(".notes").textContent = notes.join(" ");

    const rows = [];
    const row = (name, q, part) => {
      if (q.samples) rows.push({ part, texts: [name, ...[q.p50_us, q.p90_us, q.p99_us, q.p999_us, q.p9999_us, q.max_us].map(time), count(q.samples)] });
    };
    if (report.floor) {
      const { before, after } = report.floor;
      row("floor: write", before.write, true);
      row("floor: echo", before.echo, true);
      row("floor: sum", before.sum);
      if (after) row("floor: sum, after", after.sum);
    }
    for (const { load, name, part } of loads()) {
      // A delivery has one time only.
      row(load.service.samples ? name + ": response" : name, load.response, part);
      if (part) continue;
      row(name + ": service", load.service, true);
      row(name + ": send delay", load.send_delay, true);
      const asked = load.percentiles || [];
      if (asked.length) rows.push({ part: true, texts: [name + ": as asked", [asked.map((p) => `p${p.percent} ${time(p.response_us)}`).join(", "), "words"]] });
    }
    table("figures", ["", "p50", "p90", "p99", "p99.9", "p99.99", "max", "samples"], rows);

    table("errors", ["", "not stored", "unknown", "broken connections", "why"],
      loads().filter(({ load: { errors: e } }) => e.not_stored || e.unknown || e.disconnects).map(({ load: { errors: e }, name, part }) => ({ part, texts: [
        name, count(e.not_stored), count(e.unknown), count(e.disconnects),
        [Object.entries(e.by_cause).map(([cause, n]) => `${cause}: ${count(n)}`).join("; "), "words"]] })));

    table("disturbed", ["", "what", "at", "took", "ranges", "into", "p99 near it", "stall", "why not"],
      loads().flatMap(({ load, name, part }) => (load.disturbed || []).map((act) => ({ part, texts: [
        name, act.what, act.at_seconds.toFixed(3) + " s", time(act.seconds * 1e6), (act.parents || []).join(", ") || count(act.ranges),
        (act.successors || []).join(", "), time(act.near_p99_us), time(act.stall_us), act.error ? [act.error, "words bad"] : ""] }))));
    const costs = report.phases.filter((phase) => phase.splits_and_merges).map((phase) => {
      const s = phase.splits_and_merges;
      return `${phase.name}: ${plural(s.splits, "split")}, ${plural(s.merges, "merge")}; p99 within 50 ms of one ${time(s.near.p99_us)} (${plural(s.near.samples, "sample")}), of all others ${time(s.others.p99_us)} (${plural(s.others.samples, "sample")}), the greatest of one ${time(s.act_p99_max_us)}; stall: median ${time(s.stall_median_us)}, greatest ${time(s.stall_max_us)}.`;
    });
    byId("disturbed").querySelector("p").textContent =
      ["Near: meant to be sent within 50 ms, from the begin of an act to its end; the stall is the greatest response time of those."].concat(costs).join(" ");

    const v = report.verification;
    if (v) table("verification", ["acknowledged", "read", "lost", "duplicated", "reordered", "damaged", "unexpected", "unknown", "gaps", "of others"],
      [{ texts: [count(v.acknowledged), count(v.read), ...[v.lost, v.duplicated, v.reordered, v.damaged, v.unexpected].map((n) => n ? [count(n), "bad"] : count(n)),
        count(v.unknown), count(Object.values(v.gaps).reduce((a, b) => a + b, 0)), count(v.foreign)] }]);

    const reader = ["records", "bytes", "time", "records/s", "throughput", "gaps"];
    const read = (c) => [count(c.records), count(c.bytes), c.seconds.toFixed(2) + " s", count(c.records_a_second), megabytes(c.bytes, c.seconds), count(c.gaps)];
    if (report.catchup) table("catchup", ["", ...reader], [{ texts: ["from the beginning", ...read(report.catchup)] }]);
    const m = report.mixed;
    if (m) {
      table("mixed", ["", ...reader], [{ texts: ["the reader", ...read(m.reader)] }]);
      byId("mixed").querySelector("p").textContent =
        `Median p99 of ${plural(m.rounds, "round")}: alone ${time(m.alone_p99_us)}, beside a reader that catches up ${time(m.beside_p99_us)}, ratio ${ratio(m.ratio_p99)}.`;
    }
  }

  const axis = (more) => Object.assign({ stroke: () => color("faint"), grid: { stroke: () => color("line"), width: 1 }, ticks: { stroke: () => color("line"), width: 1 }, font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif", labelSize: 20, size: 34, labelGap: 0 }, more);
  const line = (index, label, more) => Object.assign({ label, stroke: () => color("s" + index % 6), width: 2, spanGaps: false, value: (_, us) => time(us) }, more);
  // A figure of the legend that no curve shows.
  const unseen = (label) => ({ label, scale: "unseen", width: 0, points: { show: false }, value: (_, n) => count(n) });
  // Times on a logarithmic axis: a p50 and a maximum may lie a thousand times apart.
  const logarithmic = { distr: 3, log: 10 };
  const micros = { values: (_, ticks) => ticks.map((us) => us == null ? "" : unit(us, () => 0)), size: 66, label: "response time" };
  const charts = [];
  const undrawn = new Set();

  function chart(parent, options, columns) {
    const place = document.createElement("div");
    parent.append(place);
    const width = () => Math.max(320, Math.min(1008, parent.clientWidth));
    undrawn.add(place);
    const drawn = () => {
      undrawn.delete(place);
      told();
    };
    const hooks = Object.assign({ draw: [drawn] }, options.hooks);
    const plot = new uPlot(Object.assign({ width: width(), height: 320, padding: [12, 36, 0, 0] }, options, { hooks }), columns, place);
    charts.push(() => plot.setSize({ width: width(), height: 320 }));
    charts.push(() => plot.redraw(false, true));
  }

  // How many charts there are, once each has been drawn: for whoever looks at the page by a program.
  let complete = false;
  function told() {
    if (complete && !undrawn.size) document.documentElement.dataset.drawn = document.querySelectorAll("canvas").length;
  }

  function percentiles() {
    if (!data.curves.length) return;
    byId("percentiles").hidden = false;
    const isDecade = (x) => Math.abs(Math.log10(x) - Math.round(Math.log10(x))) < 1e-6;
    const decades = (_, splits) => splits.map((x) => isDecade(x) ? x : null);
    const percent = (x) => (100 - 100 / x).toFixed(Math.max(0, Math.round(Math.log10(x)) - 2)) + " %";
    chart(byId("percentiles").querySelector(".chart"), {
      scales: { x: { time: false, distr: 3, log: 10 }, y: logarithmic },
      axes: [axis({ label: "percentile", filter: decades, grid: { stroke: () => color("line"), width: 1, filter: decades }, values: (_, ticks) => ticks.map((x) => x == null ? "" : percent(x)) }), axis(micros)],
      series: [{ label: "percentile", value: (_, x) => x == null ? "–" : (100 - 100 / x).toFixed(4) + " %" }]
        .concat(data.curves.map((curve, index) => line(index, curve.phase, { points: { show: false } }))),
    }, uPlot.join(data.curves.map((curve) => [curve.x, curve.us])));
  }

  // The load in the middle of those of one rate, by p99; without a p99 it counts as slow.
  function median(loads) {
    const p99 = (load) => load.response.p99_us == null ? Infinity : load.response.p99_us;
    return loads.slice().sort((a, b) => p99(a) - p99(b))[Math.floor(loads.length / 2)];
  }

  function rates() {
    const sweep = report.sweep;
    if (!sweep || !sweep.steps.length) return;
    const steps = sweep.steps.slice().sort((a, b) => a.offered_rate - b.offered_rate);
    table("rates", ["offered/s", "achieved/s", "p50", "p90", "p99", "p99.9", "max", "samples", "not stored or unknown", "objective"],
      steps.map((s) => ({ texts: [
        count(s.offered_rate), count(s.achieved_rate), ...["p50_us", "p90_us", "p99_us", "p999_us", "max_us"].map((q) => time(s.response[q])), count(s.response.samples), count(s.errors || 0),
        s.kept ? "kept" : [s.saturated ? "missed: saturated" : "missed", "bad"]] })));
    byId("rates").querySelector("p").textContent =
      `Highest rate that keeps ${sweep.objective}: ${sweep.highest_rate == null ? "none" : count(sweep.highest_rate) + " records/s"}. A point is the median load of a rate by p99; shaded: rates that were not kept; below: every load.`;
    const byRate = [...new Set(steps.map((s) => s.offered_rate))].map((rate) => median(steps.filter((s) => s.offered_rate === rate)));
    const points = { points: { show: true, size: 6 } };
    const beyond = (plot) => {
      const from = sweep.highest_rate == null ? plot.bbox.left : plot.valToPos(sweep.highest_rate, "x", true);
      plot.ctx.save();
      plot.ctx.fillStyle = color("shade");
      plot.ctx.fillRect(from, plot.bbox.top, plot.bbox.left + plot.bbox.width - from, plot.bbox.height);
      plot.ctx.restore();
    };
    chart(byId("rates").querySelector(".chart"), {
      scales: { x: { time: false, range: (_, least, most) => [0, most * 1.05] }, y: logarithmic },
      axes: [axis({ label: "offered records a second", values: (_, ticks) => ticks.map(count) }), axis(micros)],
      series: [{ label: "offered/s", value: (_, rate) => count(rate) }, line(0, "p50", points), line(2, "p99", points), line(4, "p99.9", points)],
      hooks: { drawClear: [beyond] },
    }, [byRate.map((s) => s.offered_rate), ...["p50_us", "p99_us", "p999_us"].map((q) => byRate.map((s) => s.response[q]))]);
  }

  function rounds() {
    const runs = report.runs || [];
    if (!report.mixed || runs.length < 4) return;
    const names = [...new Set(runs.map((run) => run.name))];
    const columns = names.map((name) => runs.filter((run) => run.name === name).map((run) => run.response.p99_us));
    chart(byId("mixed").querySelector(".chart"), {
      scales: { x: { time: false, range: (_, least, most) => [least - 0.25, most + 0.25] }, y: logarithmic },
      axes: [axis({ label: "round", values: (_, ticks) => ticks.map((n) => Number.isInteger(n) ? n : "") }), axis(Object.assign({}, micros, { label: "p99 of the response time" }))],
      series: [{ label: "round" }].concat(names.map((name, index) => line(index * 2, name, { points: { show: true, size: 7 } }))),
    }, [columns[0].map((_, index) => index + 1), ...columns]);
  }

  // Rolls, checkpoints, splits and merges as lines, stolen intervals as shade, behind the curves.
  function marks(intervals) {
    return (plot) => {
      const { ctx, bbox } = plot;
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      ctx.fillStyle = color("shade");
      for (const i of intervals.filter((i) => i.stolen)) {
        const from = plot.valToPos(i.start_s, "x", true);
        ctx.fillRect(from, bbox.top, plot.valToPos(i.start_s + i.seconds, "x", true) - from, bbox.height);
      }
      for (const event of intervals.flatMap((i) => i.events)) {
        const from = plot.valToPos(event.begin_s, "x", true);
        const wide = Math.max(devicePixelRatio, plot.valToPos(event.end_s, "x", true) - from);
        ctx.fillStyle = color(event.kind);
        // A long one must not hide the curves, a short one must be seen.
        ctx.globalAlpha = wide > 4 * devicePixelRatio ? 0.25 : 0.8;
        ctx.fillRect(from, bbox.top, wide, bbox.height);
      }
      ctx.restore();
    };
  }

  function times() {
    const phases = [...new Set(data.intervals.map((i) => i.phase))];
    if (!phases.length) return;
    const section = byId("times");
    section.hidden = false;
    for (const phase of phases) {
      const intervals = data.intervals.filter((i) => i.phase === phase);
      const sum = (of) => intervals.reduce((total, i) => total + of(i), 0);
      const title = document.createElement("h3");
      const seen = (kind) => sum((i) => i.events.filter((event) => event.kind === kind).length);
      const acts = ["split", "merge"].filter(seen).map((kind) => ", " + plural(seen(kind), kind)).join("");
      const events = report.settings.disturbance ? `${plural(sum((i) => i.rolls), "roll")}, ${plural(sum((i) => i.checkpoints), "checkpoint")}${acts}` : "rolls and checkpoints were not asked for (--events)";
      const stolen = sum((i) => i.stolen ? 1 : 0);
      title.textContent = `${phase}: ${events}` + (stolen ? `; the hypervisor took over 2 % of ${plural(stolen, "interval")} of ${intervals.length}` : "");
      const place = document.createElement("div");
      place.className = "chart";
      section.append(title, place);
      const column = (of) => intervals.map(of);
      const last = intervals[intervals.length - 1];
      const until = last.start_s + last.seconds;
      chart(place, {
        scales: { x: { time: false, range: () => [0, until] }, y: logarithmic },
        axes: [axis({ label: "seconds from the begin of the measured time", values: (_, ticks) => ticks.map((s) => +s.toFixed(3)) }), axis(micros)],
        series: [{ label: "time", value: (_, s) => s == null ? "–" : s.toFixed(1) + " s" }, line(0, "p50"), line(2, "p99"), line(4, "max"),
          unseen("achieved/s"), unseen("samples")],
        hooks: { drawClear: [marks(intervals)] },
      }, [column((i) => i.start_s + i.seconds / 2), column((i) => i.response.p50_us), column((i) => i.response.p99_us), column((i) => i.response.max_us),
        column((i) => i.achieved_rate), column((i) => i.response.samples)]);
    }
  }

  facts();
  figures();
  rounds();
  rates();
  percentiles();
  times();
  complete = true;
  told();
  const again = () => charts.forEach((draw) => draw());
  addEventListener("resize", again);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
})();
