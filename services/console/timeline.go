package console

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"flightline/shared/client"
	"flightline/shared/pod"
)

// bar is something that a job did, from then until then.
type bar struct {
	Label, Class, Note string
	From, To           time.Time
}

// timeline is what a job did, in order.
type timeline struct {
	Bars     []bar
	From, To time.Time
}

// timelineOf makes a bar of each wait and run, and of each delivery of the webhook. now ends
// what goes on.
func timelineOf(events []client.Event, deliveries []client.WebhookDelivery, over bool, now time.Time) *timeline {
	if len(events) == 0 {
		return nil
	}
	t := &timeline{}
	open := -1 // the bar that goes on
	end := func(at time.Time) {
		if open >= 0 {
			t.Bars[open].To = at
		}
		open = -1
	}
	begin := func(b bar) {
		t.Bars = append(t.Bars, b)
		open = len(t.Bars) - 1
	}
	for _, e := range events {
		switch e.Type {
		case "job.queued":
			end(e.Time)
			begin(bar{Label: fmt.Sprintf("attempt %d waits", e.Attempt), Class: "wait", From: e.Time})
		case "job.started":
			if open >= 0 && t.Bars[open].Class == "run" {
				t.Bars[open].Class, t.Bars[open].Note = "lost", "its worker was lost or gave it back"
			}
			end(e.Time)
			begin(bar{Label: fmt.Sprintf("attempt %d, run %d", e.Attempt, e.Run), Class: "run", From: e.Time, Note: e.WorkerID})
		default:
			end(e.Time)
		}
	}
	last := now
	if over {
		last = events[len(events)-1].Time
	}
	end(last)
	for _, d := range slices.Backward(deliveries) { // the newest is first
		t.Bars = append(t.Bars, bar{
			Label: fmt.Sprintf("webhook, try %d", d.Try), Class: "hook", Note: d.Outcome,
			From: d.Started, To: d.Started.Add(time.Duration(d.DurationMs) * time.Millisecond),
		})
	}
	t.From, t.To = t.Bars[0].From, t.Bars[0].To
	for _, b := range t.Bars {
		if b.To.After(t.To) {
			t.To = b.To
		}
	}
	return t
}

// addStart adds how the worker started that ran the job last: the job waited for it. A
// phase whose end is not known lasts until the worker began the job.
func (t *timeline) addStart(worker string, s *client.Startup) {
	if t == nil || s == nil {
		return
	}
	at := slices.IndexFunc(t.Bars, func(b bar) bool { return b.Class == "run" && b.Note == worker })
	if at < 0 { // the log does not have its run yet
		return
	}
	var bars []bar
	phases := s.Phases()
	for _, phase := range pod.AllPhases {
		from := phases.At(phase)
		if from.IsZero() || phase == pod.Ready {
			continue
		}
		to := from.Add(phases.Took(phase))
		if phase == s.Phase && t.Bars[at].From.After(from) {
			to = t.Bars[at].From
		}
		bars = append(bars, bar{Label: "worker " + string(phase), Class: "cold", Note: worker, From: from, To: to})
	}
	t.Bars = slices.Insert(t.Bars, at, bars...)
}

// Draw is the timeline as SVG, a row for each bar.
func (t *timeline) Draw() template.HTML {
	const width, left, row = 900, 170, 24
	height := row*len(t.Bars) + 22
	whole := max(t.To.Sub(t.From), time.Millisecond)
	x := func(at time.Time) float64 { return left + (width-left-60)*float64(at.Sub(t.From))/float64(whole) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="gantt" viewBox="0 0 %d %d" role="img" aria-label="Timeline of %s">`, width, height, millis(whole))
	for i := range 5 {
		at := t.From.Add(whole * time.Duration(i) / 4)
		fmt.Fprintf(&b, `<path class="grid" d="M%s 0V%d"/><text class="tick" text-anchor="middle" x="%s" y="%d">%s</text>`, short1(x(at)), height-18, short1(x(at)), height-5, millis(at.Sub(t.From)))
	}
	for i, bar := range t.Bars {
		y := row * i
		from := x(bar.From)
		wide := max(2, x(bar.To)-from)
		fmt.Fprintf(&b, `<g><title>%s: %s %s</title><text x="0" y="%d">%s</text><rect class="g-%s" x="%s" y="%d" width="%s" height="14"/><text class="tick" x="%s" y="%d">%s</text></g>`,
			template.HTMLEscapeString(bar.Label), millis(bar.To.Sub(bar.From)), template.HTMLEscapeString(bar.Note), y+15, template.HTMLEscapeString(bar.Label),
			template.HTMLEscapeString(bar.Class), short1(from), y+4, short1(wide), short1(min(from+wide+4, width-56)), y+15, millis(bar.To.Sub(bar.From)))
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) //nolint:gosec // numbers and escaped texts
}
