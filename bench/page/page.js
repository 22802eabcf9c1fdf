"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const report = data.report;
  const byId = (id) => document.getElementById(id);
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const time = (us) => us == null ? "–" : us < 1e3 ? us.toFixed(1) + " µs" : us < 1e6 ? (us / 1e3).toFixed(2) + " ms" : (us / 1e6).toFixed(2) + " s";
  const count = (n) => n == null ? "–" : Math.round(n).toLocaleString("en");
  const ratio = (r) => r == null ? "–" : r.toFixed(2) + "×";

  function cells(row, tag, texts) {
    for (const text of texts) {
      const cell = document.createElement(tag);
      cell.textContent = text;
      row.append(cell);
    }
  }

  function figures() {
    const table = byId("figures");
    cells(table.createTHead().insertRow(), "th",
      ["", "loop", "offered/s", "achieved/s", "p50", "p90", "p99", "p99.9", "p99.99", "max", "samples", "p99 ÷ floor"]);
    const body = table.createTBody();
    const row = (name, loop, offered, achieved, q, over) => cells(body.insertRow(), "td", [name, loop, offered, achieved,
      time(q.p50_us), time(q.p90_us), time(q.p99_us), time(q.p999_us), time(q.p9999_us), time(q.max_us), count(q.samples), over]);
    if (report.floor) row("floor", "", "", "", report.floor.before.sum, "");
    for (const phase of report.phases) {
      const name = phase.name + (phase.saturated ? " (saturated)" : "");
      row(name, phase.closed ? "closed" : "open", count(phase.offered_rate), count(phase.achieved_rate), phase.response,
        ratio(phase.ratios && phase.ratios.p99));
    }
    for (const [index, phase] of (report.runs || []).entries()) {
      row("run " + (index + 1), "", count(phase.offered_rate), count(phase.achieved_rate), phase.response, "");
    }
    const notes = [];
    const v = report.verification;
    if (v) notes.push(`Verification: ${v.acknowledged} acknowledged, ${v.lost} lost, ${v.duplicated} duplicated, ${v.reordered} reordered, ${v.damaged} damaged, ${v.unexpected} unexpected.`);
    for (const phase of report.phases) {
      const d = phase.disturbance;
      if (d) notes.push(`${phase.name}: ${d.rolls} rolls, ${d.checkpoints} checkpoints; p99.9 within 100 ms of one ${time(d.near.p999_us)}, others ${time(d.others.p999_us)}.`);
    }
    if (report.sweep) notes.push(`Highest rate that keeps ${report.sweep.objective}: ${report.sweep.highest_rate == null ? "none" : count(report.sweep.highest_rate)} records/s.`);
    byId("notes").textContent = notes.join(" ");
    byId("facts").textContent = `Version ${report.version}, commit ${report.commit}; ${new Date(report.started_ms).toISOString()}; ${report.host.cpu}, ${report.host.cpus} cores, Linux ${report.host.kernel}; ${report.settings.connections} connections, ${report.settings.value_bytes} B values, ${report.settings.batch} a batch, ${report.settings.ranges} ranges`;
    if (data.flaw) {
      byId("flaw").hidden = false;
      byId("flaw").textContent = "Not a measurement: " + data.flaw;
    }
  }

  const axis = (more) => Object.assign({ stroke: () => color("faint"), grid: { stroke: () => color("line"), width: 1 }, ticks: { stroke: () => color("line"), width: 1 } }, more);
  const line = (index, label, more) => Object.assign({ label, stroke: () => color("s" + index % 6), width: 2, spanGaps: false, value: (_, us) => time(us) }, more);
  const micros = { values: (_, ticks) => ticks.map((us) => us == null ? "" : time(us)), size: 78 };
  const charts = [];

  function chart(parent, options, columns) {
    const width = () => Math.max(320, Math.min(1008, parent.clientWidth));
    const plot = new uPlot(Object.assign({ width: width(), height: 320 }, options), columns, parent);
    charts.push(() => plot.setSize({ width: width(), height: 320 }));
    charts.push(() => plot.redraw(false, true));
  }

  function percentiles() {
    if (!data.curves.length) return;
    byId("percentiles").hidden = false;
    const percent = (x) => (100 - 100 / x).toFixed(Math.max(0, Math.round(Math.log10(x)) - 2)) + " %";
    const columns = uPlot.join(data.curves.map((curve) => [curve.x, curve.us]));
    const all = data.curves.flatMap((curve) => curve.us);
    chart(byId("percentiles").querySelector(".chart"), {
      scales: { x: { time: false, distr: 3, log: 10 }, y: { range: [0, Math.max(...all) * 1.05] } },
      axes: [axis({ values: (_, ticks) => ticks.map((x) => x == null || Math.abs(Math.log10(x) % 1) > 1e-6 ? "" : percent(x)) }), axis(micros)],
      series: [{ label: "percentile", value: (_, x) => x == null ? "–" : (100 - 100 / x).toFixed(4) + " %" }]
        .concat(data.curves.map((curve, index) => line(index, curve.phase))),
    }, columns);
  }

  function rates() {
    if (!report.sweep || !report.sweep.steps.length) return;
    byId("rates").hidden = false;
    const steps = report.sweep.steps.slice().sort((a, b) => a.offered_rate - b.offered_rate);
    const points = { points: { show: true, size: 6 } };
    chart(byId("rates").querySelector(".chart"), {
      scales: { x: { time: false }, y: { distr: 3, log: 10 } },
      axes: [axis({ values: (_, ticks) => ticks.map(count) }), axis(micros)],
      series: [{ label: "offered/s", value: (_, rate) => count(rate) }, line(0, "p50", points), line(2, "p99", points), line(4, "p99.9", points)],
    }, [steps.map((s) => s.offered_rate), steps.map((s) => s.response.p50_us), steps.map((s) => s.response.p99_us), steps.map((s) => s.response.p999_us)]);
  }

  // Rolls and checkpoints as lines, stolen intervals as shade, behind the curves.
  function marks(intervals) {
    return (plot) => {
      const { ctx, bbox } = plot;
      ctx.save();
      ctx.fillStyle = color("shade");
      for (const i of intervals.filter((i) => i.stolen)) {
        const from = plot.valToPos(i.start_s, "x", true);
        ctx.fillRect(from, bbox.top, plot.valToPos(i.start_s + i.seconds, "x", true) - from, bbox.height);
      }
      for (const event of intervals.flatMap((i) => i.events)) {
        const from = plot.valToPos(event.begin_s, "x", true);
        const to = plot.valToPos(event.end_s, "x", true);
        ctx.fillStyle = color(event.kind);
        ctx.globalAlpha = 0.7;
        ctx.fillRect(Math.max(bbox.left, from), bbox.top, Math.max(devicePixelRatio, to - from), bbox.height);
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
      const title = document.createElement("h3");
      title.textContent = phase;
      const place = document.createElement("div");
      place.className = "chart";
      section.append(title, place);
      const column = (of) => intervals.map(of);
      chart(place, {
        scales: { x: { time: false, range: (_, least, most) => least === most ? [least - 0.5, most + 0.5] : [least, most] } },
        axes: [axis({ values: (_, ticks) => ticks.map((s) => s + " s") }), axis(micros)],
        series: [{ label: "time", value: (_, s) => s == null ? "–" : s + " s" }, line(0, "p50"), line(2, "p99"), line(4, "max")],
        hooks: { drawClear: [marks(intervals)] },
      }, [column((i) => i.start_s + i.seconds / 2), column((i) => i.response.p50_us), column((i) => i.response.p99_us), column((i) => i.response.max_us)]);
    }
  }

  figures();
  percentiles();
  rates();
  times();
  const again = () => charts.forEach((draw) => draw());
  addEventListener("resize", again);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
})();
