package stats_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/stats"
)

// Each quantile is within 3.2 % of that of the values themselves, over all sizes.
func TestQuantilesAreNearlyRight(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for _, largest := range []float64{10, 1000, 60_000, 7 * 24 * 3600_000} {
		var h stats.Histogram
		var values []float64
		for range 5000 {
			ms := math.Floor(math.Exp(random.Float64() * math.Log(largest)))
			values = append(values, ms)
			h.Add(time.Duration(ms) * time.Millisecond)
		}
		slices.Sort(values)
		for _, q := range []float64{0, 0.5, 0.95, 0.99, 1} {
			want := values[max(0, int(math.Ceil(q*float64(len(values))))-1)]
			got := float64(h.Quantile(q).Milliseconds())
			if math.Abs(got-want) > 0.032*want {
				t.Errorf("up to %v, quantile %v: got %v, want %v", largest, q, got, want)
			}
		}
	}
}

func TestAHistogramSurvivesItsTextAndMerges(t *testing.T) {
	t.Parallel()
	var a, b, both stats.Histogram
	for i := range 1000 {
		d := time.Duration(i*i) * time.Millisecond
		both.Add(d)
		if i%3 == 0 {
			a.Add(d)
		} else {
			b.Add(d)
		}
	}
	text, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	var read stats.Histogram
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	a.Merge(read)
	if got, want := fmt.Sprint(a), fmt.Sprint(both); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	var none stats.Histogram
	none.Add(-time.Second)
	if got := none.Quantile(0.5); got != 0 || none.Count() != 1 {
		t.Errorf("a negative time: got %v and %d, want 0 and 1", got, none.Count())
	}
	if got := (stats.Histogram{}).Quantile(0.5); got != 0 {
		t.Errorf("nothing counted: got %v, want 0", got)
	}
	for _, text := range []string{`[1]`, `[-1,2]`, `[1,-2]`, `[99999,1]`, `{}`} {
		if err := json.Unmarshal([]byte(text), &read); err == nil {
			t.Errorf("%s: got no error", text)
		}
	}
}

func TestPointsAddUp(t *testing.T) {
	t.Parallel()
	p := stats.Point{Submitted: 1, Completed: 2, Failed: 3, TimedOut: 4, Cancelled: 5, Retried: 6, Lost: 7, Workers: 8, BusyGPUSeconds: 9}
	p.Delay.Add(time.Second)
	p.Execution.Add(time.Minute)
	sum := stats.Point{Workers: 10}
	sum.Merge(p)
	sum.Merge(p)
	sum.Add(stats.Sample{Workers: 3, BusyGPUs: 2}, 15*time.Second)
	want := stats.Point{Submitted: 2, Completed: 4, Failed: 6, TimedOut: 8, Cancelled: 10, Retried: 12, Lost: 14, Workers: 10, BusyGPUSeconds: 48}
	for range 2 {
		want.Delay.Add(time.Second)
		want.Execution.Add(time.Minute)
	}
	got, _ := json.Marshal(sum)
	expected, _ := json.Marshal(want)
	if delta := cmp.Diff(string(expected), string(got)); delta != "" {
		t.Error(delta)
	}
}

const traceback = `Traceback (most recent call last):
  File "/app/rp_handler.py", line 31, in handler
    image = pipe(prompt, num_inference_steps=steps).images[0]
  File "/usr/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1511, in _call_impl
    return forward_call(*args, **kwargs)
torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 23.69 GiB
`

func TestCause(t *testing.T) {
	t.Parallel()
	sdk, _ := json.Marshal(map[string]string{"error_message": "no key \"seed\"\nin input", "error_traceback": traceback, "error_type": "<class 'KeyError'>", "worker_id": "abc"})
	oom := "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 23.69 GiB"
	for name, tt := range map[string]struct{ text, want string }{
		"nothing":                   {"", ""},
		"spaces":                    {" \n\t", ""},
		"a line":                    {"no model", "no model"},
		"the first of several":      {"\nno model\ncheck the path", "no model"},
		"a traceback":               {traceback, oom},
		"one after the other":       {"Traceback (most recent call last):\n  x\nValueError: a\n\nDuring handling of the above exception, another exception occurred:\n\n" + traceback, oom},
		"a traceback that was cut":  {"Traceback (most recent call last):\n  File \"x\", line 1", `File "x", line 1`},
		"the SDK's object":          {string(sdk), `KeyError: no key "seed"`},
		"the SDK's object, cut":     {`{"error_type": "<class 'ValueError'>", "error_message": "bad size 3", "error_trac`, "ValueError: bad size 3"},
		"the SDK's, cut in a text":  {`{"error_type": "<class 'ValueError'>", "error_message": "bad si`, "ValueError: bad si"},
		"an object with an error":   {`{"code": 3, "error": "no such file"}`, "no such file"},
		"an object without":         {`{"code": 3}`, `{"code": 3}`},
		"a panic":                   {"starting\npanic: runtime error: index out of range [5]\n\ngoroutine 1 [running]:\nmain.main()", "panic: runtime error: index out of range [5]"},
		"control characters":        {"a\x1b[31mb\x00c", "a [31mb c"},
		"what is no UTF-8":          {"a\xffb", "ab"},
		"a long one, by characters": {strings.Repeat("é", 150), strings.Repeat("é", 100)},
	} {
		if got := stats.Cause(tt.text); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

// Each list is texts of one cause; those of two lists have different ones.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	lists := [][]string{
		{traceback, strings.ReplaceAll(strings.ReplaceAll(traceback, "2.50", "14.00"), "GPU 0", "GPU 3")},
		{"KeyError: 'seed'", "KeyError: 'steps'", `{"error_type": "<class 'KeyError'>", "error_message": "'width'", "hostname": "a1"}`},
		{"open /models/a/b.safetensors: no such file", "open /data/x: no such file", "open C:\\models\\x.bin: no such file"},
		{"job 01a1fc8f-4204-772c-b9b6-e4a7d65969e8 took too long", "job 0192aaaa-0000-7000-8000-000000000001 took too long"},
		{"shape [1, 77, 768] does not fit", "shape [2, 77] does not fit"},
		{"cannot connect to http://10.0.0.3:8000/v1/models", "cannot connect to https://model.internal/x?y=1"},
		{"object 0x7f3a1c at rest", "object 0xdeadbeef at rest"},
		{"commit 9f8e7d6c5b4a3921 is gone", "commit 1234567890abcdef is gone"},
		{"worker w7 was lost", "worker w12 was lost"},
		{"took 1.5 s of 2 s", "took 12.25 s of 200 s"},
		{"can't load 'a' and don't know why", "can't load 'b c' and don't know why"},
		{"no model"},
		{"no module"},
	}
	seen := map[string]int{}
	for i, list := range lists {
		for _, text := range list {
			got := stats.Fingerprint(text)
			if !stats.ValidFingerprint(got) {
				t.Errorf("%q: got %q, want 16 hexadecimal digits", text, got)
			}
			if got != stats.Fingerprint(list[0]) {
				t.Errorf("%q and %q differ: %q, %q", text, list[0], stats.Template(stats.Cause(text)), stats.Template(stats.Cause(list[0])))
			}
			if other, there := seen[got]; there && other != i {
				t.Errorf("%q has the fingerprint of %q", text, lists[other][0])
			}
			seen[got] = i
		}
	}
	if got := stats.Fingerprint(" "); got != "" {
		t.Errorf("nothing: got %q", got)
	}
	for _, text := range []string{"", "other", "0123456789ABCDEF", "0123456789abcde", "0123456789abcdeg"} {
		if stats.ValidFingerprint(text) {
			t.Errorf("%q is valid", text)
		}
	}
}

// A cause is its own cause, one line, of bounded size; so an event that keeps only the
// cause has the fingerprint of the whole text.
func FuzzCause(f *testing.F) {
	for _, text := range []string{traceback, `{"error_type": "<class 'X'>", "error_message": "{\"error\": \"a\"}"}`, "panic: {\n", "\x00{\"error\":\"\\", "Traceback (most recent call last)\n a\n b"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		cause := stats.Cause(text)
		if again := stats.Cause(cause); again != cause {
			t.Errorf("the cause of %q is %q", cause, again)
		}
		if len(cause) > stats.MaxCause || !utf8.ValidString(cause) || strings.ContainsAny(cause, "\n\r\x00") {
			t.Errorf("got %q", cause)
		}
		if got, want := stats.Fingerprint(cause), stats.Fingerprint(text); got != want {
			t.Errorf("of the cause: got %s, want %s", got, want)
		}
	})
}

func TestFailuresAreGrouped(t *testing.T) {
	t.Parallel()
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	var early, late stats.Failures
	for i := range 8 {
		early.Add(fmt.Sprint("a", i), fmt.Sprintf("no file %d", i), at(int64(100+i)))
	}
	late.Add("b", "no file 9", at(500))
	late.Add("c", "KeyError: 'x'", at(600))
	late.Merge(early)
	want := stats.Failures{
		{Fingerprint: stats.Fingerprint("no file 1"), Cause: "no file 9", Count: 9, First: 100_000, Last: 500_000, LastJobs: []string{"b", "a7", "a6", "a5", "a4"}},
		{Fingerprint: stats.Fingerprint("KeyError: 'x'"), Cause: "KeyError: 'x'", Count: 1, First: 600_000, Last: 600_000, LastJobs: []string{"c"}},
	}
	if delta := cmp.Diff(want, late); delta != "" {
		t.Error(delta)
	}
}

// Further causes than are kept apart are counted together.
func TestTheNumberOfGroupsIsBounded(t *testing.T) {
	t.Parallel()
	var f stats.Failures
	for i := range 3 * stats.MaxGroups {
		name := strings.Repeat("x", i+1)
		got, want := f.Add("j", name, time.Unix(int64(i), 0)), stats.Fingerprint(name)
		if i >= stats.MaxGroups && i < stats.MaxCause {
			want = stats.Other
		}
		if i < stats.MaxCause && got != want {
			t.Errorf("cause %d: got %s, want %s", i, got, want)
		}
	}
	var sum int64
	for _, g := range f {
		sum += g.Count
	}
	if len(f) != stats.MaxGroups+1 || sum != 3*stats.MaxGroups {
		t.Errorf("got %d groups of %d failures, want %d of %d", len(f), sum, stats.MaxGroups+1, 3*stats.MaxGroups)
	}
}
