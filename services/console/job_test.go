package console

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"flightline/shared/client"
	"flightline/shared/job"
	"flightline/shared/pod"
	"flightline/shared/registry"
)

// The timeline has a bar for each wait and run; a run that another one follows lost its worker,
// or its worker gave the job back: the events are the same.
func TestTheTimelineOfAJob(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(1000+s), 0) }
	events := []client.Event{
		{Type: "job.queued", Time: at(0), Attempt: 1},
		{Type: "job.started", Time: at(2), Attempt: 1, Run: 1, WorkerID: "w1"},
		{Type: "job.started", Time: at(5), Attempt: 1, Run: 2, WorkerID: "w2"},
		{Type: "job.failed", Time: at(6), Attempt: 1, Run: 2},
		{Type: "job.queued", Time: at(9), Attempt: 2},
		{Type: "job.started", Time: at(10), Attempt: 2, Run: 1},
	}
	got := timelineOf(events, []client.WebhookDelivery{{Try: 2, Started: at(8), DurationMs: 500}, {Try: 1, Started: at(7), DurationMs: 100}}, false, at(20))
	want := []struct {
		class    string
		from, to int
	}{{"wait", 0, 2}, {"lost", 2, 5}, {"run", 5, 6}, {"wait", 9, 10}, {"run", 10, 20}}
	if len(got.Bars) != len(want)+2 {
		t.Fatalf("got %d bars, want %d and two deliveries", len(got.Bars), len(want))
	}
	for i, w := range want {
		if b := got.Bars[i]; b.Class != w.class || !b.From.Equal(at(w.from)) || !b.To.Equal(at(w.to)) {
			t.Errorf("bar %d: got %s from %v to %v, want %v", i, b.Class, b.From, b.To, w)
		}
	}
	if note := got.Bars[1].Note; note != "its worker was lost or gave it back" {
		t.Errorf("the run that another one follows: got %q", note)
	}
	if first := got.Bars[len(want)]; first.Label != "webhook, try 1" || !got.To.Equal(at(20)) {
		t.Errorf("got %q first and the end %v, want the deliveries in order of time", first.Label, got.To)
	}
	if timelineOf(nil, nil, true, at(0)) != nil {
		t.Error("no events have a timeline")
	}
}

// The start of a worker is in the timeline of the job that waited for it, ahead of its run.
func TestTheTimelineHasTheColdStart(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(1000+s), 0) }
	events := []client.Event{
		{Type: "job.queued", Time: at(0), Attempt: 1},
		{Type: "job.started", Time: at(40), Attempt: 1, Run: 1, WorkerID: "w1"},
		{Type: "job.completed", Time: at(45), Attempt: 1, Run: 1},
	}
	for name, tc := range map[string]struct {
		start *client.Startup
		want  string
	}{
		"a container":  {&client.Startup{Phase: pod.Ready, PullingAt: at(1), StartingAt: at(11), LoadingAt: at(12), ReadyAt: at(39)}, "wait 0-40, cold 1-11, cold 11-12, cold 12-39, run 40-45"},
		"not noted":    {&client.Startup{Phase: pod.Loading, StartingAt: at(11), LoadingAt: at(12)}, "wait 0-40, cold 11-12, cold 12-40, run 40-45"},
		"it was there": {nil, "wait 0-40, run 40-45"},
	} {
		got := timelineOf(events, nil, true, at(99))
		got.addStart("w1", tc.start)
		got.addStart("another", tc.start)
		var parts []string
		for _, b := range got.Bars {
			parts = append(parts, fmt.Sprintf("%s %d-%d", b.Class, b.From.Unix()-1000, b.To.Unix()-1000))
		}
		if text := strings.Join(parts, ", "); text != tc.want {
			t.Errorf("%s: got %s, want %s", name, text, tc.want)
		}
	}
	timelineOf(nil, nil, true, at(0)).addStart("w1", &client.Startup{Phase: pod.Ready}) // the log has nothing yet
	if got := startupText(&client.Startup{Phase: pod.Loading, StartingAt: at(11), LoadingAt: at(13)}); got != "starting 2.0 s, loading now" {
		t.Errorf("got %q, want what took how long, and what goes on", got)
	}
}

// A text is indented unless that makes it far longer: 50 KB, nested 3000 deep, would take 300 MB.
func TestADeeplyNestedTextIsNotIndented(t *testing.T) {
	t.Parallel()
	nested := func(depth int) json.RawMessage {
		return json.RawMessage(strings.Repeat("[", depth) + strings.Repeat("1,", 2000) + "1" + strings.Repeat("]", depth))
	}
	for _, tc := range []struct {
		raw   json.RawMessage
		shown string
	}{
		{json.RawMessage(`{"a":["[[[[ \" {{{{",{}]}`), "{\n  \"a\": [\n    \"[[[[ \\\" {{{{\",\n    {}\n  ]\n}"},
		{nested(3), "[\n  [\n    [\n      1,"},
		{nested(3000), "[[["}, // indented it takes 30 MB
	} {
		if got := textOf(tc.raw, shownOutput); !strings.HasPrefix(got.Shown, tc.shown) || got.Bytes != len(tc.raw) {
			t.Errorf("%.60s: got %.60q, want %q", tc.raw, got.Shown, tc.shown)
		}
	}
}

// What comes after a cancel is a page that the key may see.
func TestAfterACancelComesAPageOfTheKey(t *testing.T) {
	t.Parallel()
	for scope, want := range map[string]string{"submit:ep": "/ui/e/ep/try", "read:ep": "/ui/e/ep/jobs/j1"} {
		v := &visit{ctx: t.Context(), params: map[string]string{"endpoint": "ep", "id": "j1"}, scopes: scopesOf(t, scope)}
		v.api = apiOf(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"id":"j1","status":"CANCELLED"}`)
		})
		if next, err := doJob("cancel")(v); err != nil || next != want || v.noticed != "The job is CANCELLED." {
			t.Errorf("%s: got %s, %v, notice %q, want %s", scope, next, err, v.noticed, want)
		}
	}
}

// Pictures and sounds are found, and nothing that a browser could run.
func TestMediaInAnOutput(t *testing.T) {
	png := base64.StdEncoding.EncodeToString([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + strings.Repeat("x", 300)))
	for name, tc := range map[string]struct {
		value any
		want  string
	}{
		"a data address":  {map[string]string{"image": "data:image/png;base64," + png}, "image/png"},
		"bare base64":     {[]string{png}, "image/png"},
		"a sound":         {"data:audio/wav;base64,UklGRg==", "audio/wave"},
		"of type wave":    {"data:audio/wave;base64,UklGRg==", "audio/wave"},
		"of type x-wav":   {"data:audio/x-wav;base64,UklGRg==", "audio/wave"},
		"of type mp3":     {"data:audio/mp3;base64,SUQz", "audio/mpeg"},
		"a drawing":       {"data:image/svg+xml;base64," + png, ""},
		"a page":          {"data:text/html;base64," + png, ""},
		"another's host":  {"https://elsewhere.example/a.png", ""},
		"a text":          {strings.Repeat("iVBO ", 100), ""},
		"nothing at all":  {nil, ""},
		"a short picture": {png[:40], ""},
	} {
		raw, err := json.Marshal(tc.value)
		if err != nil {
			t.Fatal(err)
		}
		kind := ""
		if found := mediaIn(raw); len(found) > 0 {
			kind = found[0].Type
		}
		if kind != tc.want {
			t.Errorf("%s: got %q, want %q", name, kind, tc.want)
		}
	}
}

// What an input holds ends neither the shell's word nor the program's text.
func TestSnippetsQuoteTheInput(t *testing.T) {
	for _, s := range snippetsOf("ep", `{"text":"it's \"so\""}`) {
		if s.Name == "curl" && !strings.Contains(s.Text, `it'\''s`) {
			t.Errorf("curl: got %s", s.Text)
		}
		if (s.Name == "Python" || s.Name == "Go") && !strings.Contains(s.Text, `it's \\\"so\\\"`) {
			t.Errorf("%s: got %s", s.Name, s.Text)
		}
	}
}

// A chat ends neither the shell's word nor the program's text, and goes to the OpenAI route.
func TestSnippetsOfAChat(t *testing.T) {
	t.Parallel()
	want := map[string]string{"curl": `it'\''s`, "Python": `it's \"so\"`, "JavaScript": `it's \"so\"`, "Go": `it's \"so\"`}
	for _, s := range chatSnippets("ep", `{"model":"it's \"so\""}`) {
		text := strings.ReplaceAll(s.Text, `\\\"`, `\"`)
		if !strings.Contains(text, want[s.Name]) || !strings.Contains(s.Text, "/v2/ep/openai/v1") {
			t.Errorf("%s: got %s, want %s", s.Name, s.Text, want[s.Name])
		}
	}
}

func TestNumbersForPeople(t *testing.T) {
	for got, want := range map[string]string{
		millis(int64(7)): "7 ms", millis(1500 * time.Millisecond): "1.5 s", millis(90 * time.Second): "90 s", millis(3 * time.Hour): "3 h", millis(72 * time.Hour): "3 d",
		number(1234567): "1\u202f234\u202f567", number(-12): "-12", plural(1, "job"): "1 job", plural(2, "job"): "2 jobs",
		cut(3, "añb"): "añ…", cut(2, "añb"): "a…", short("0123456789abcdef"): "…456789abcdef",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// The top of a chart is the next of 1, 2, 5 with zeros, of a stack the sum.
func TestTheTopOfAChart(t *testing.T) {
	p := plot{Stacked: true, Series: []series{{Values: []int64{30, 1}}, {Values: []int64{25, 0}}}}
	if got := p.top(); got != 100 {
		t.Errorf("stacked: got %d, want 100", got)
	}
	if p.Stacked = false; p.top() != 50 {
		t.Errorf("lines: got %d, want 50", p.top())
	}
	if p.Empty() || !(plot{Series: []series{{Values: []int64{0, 0}}}}).Empty() {
		t.Error("only what has no value is empty")
	}
}

func TestATextThatNoIDBeginsWithIsLookedForWithinIDs(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]bool{
		"": false, "0": true, "01": true, "018d": true, "019": true, "01a2": true, "sync-01a2": true, "01a2120c-7a4b-7c1d-8e2f-3a4b5c6d7e8f": true,
		"0000": false, "018b": false, "01b": false, "7c1d": false, "sync": false, "-7c1d": false, "xyz": false,
	} {
		if got := (jobsFilter{Text: text}).BeginsID(now); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

// A link leads to a trace only if the job has one, and cannot end its attribute.
func TestAJobLinksToItsTrace(t *testing.T) {
	t.Parallel()
	const id = "0af7651916cd43dd8448eb211c80319c"
	for _, tt := range []struct{ template, id, want string }{
		{"https://h/explore?traceID={trace}&again={trace}", id, "https://h/explore?traceID=" + id + "&again=" + id},
		{"", id, ""},
		{"https://h/{trace}", "", ""},
		{"https://h/{trace}", `"><script>`, ""},
		{"https://h/{trace}", strings.ToUpper(id), ""},
	} {
		if got := traceLink(tt.template, tt.id); got != tt.want {
			t.Errorf("%q with %q: got %q, want %q", tt.template, tt.id, got, tt.want)
		}
	}
	s, err := New(Config{}, Deps{Sessions: &registry.Sessions{}, Actions: &registry.Actions{}, Connect: func(string) (API, error) { return API{}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	for link, want := range map[string]string{traceLink(`https://h/?q="><i>&t={trace}`, id): `href="https://h/?q=%22%3e%3ci%3e&amp;t=` + id + `"`, "": ""} {
		var page bytes.Buffer
		d := &jobData{Endpoint: "ep", ID: "j", Job: &client.Job{ID: "j", Status: job.Completed}, TraceLink: link}
		if err := s.pages.ExecuteTemplate(&page, "job-head", &view{V: &visit{}, D: d}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(page.String(), want) || strings.Contains(page.String(), "<dt>Trace") != (link != "") {
			t.Errorf("got %s, want %s", page.String(), want)
		}
	}
}
