package record

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// plainTexts are strings that need no escape, texts what else the header may hold.
var (
	plainTexts = []string{"", "plain", "null", "{"}
	texts      = append([]string{`"quoted" \ <b>&amp;`, "Grüße, 世界", "tab\tline\r\n", "\xff broken"}, plainTexts...)
)

// outputs are JSON as the queue keeps it.
var outputs = []string{"", `{}`, `[]`, `"a,b}]"`, `"\"\\"`, `null`, `-1.5e3`, `{"a":[1,{"b":"]},\\"}],"c":"é"}`, "[1,\n2]"}

// anyWire fills every field of wire by its type, so that a new one is not
// forgotten; often with its zero value. Where short is set, the header is in the
// form that parse reads: no escape, nothing nested.
func anyWire(r *rand.Rand, short bool) wire {
	var w wire
	texts := texts
	if short {
		texts = plainTexts
	}
	for _, f := range reflect.ValueOf(&w).Elem().Fields() {
		if r.IntN(3) == 0 {
			continue
		}
		switch f.Interface().(type) {
		case json.RawMessage:
			if out := outputs[r.IntN(len(outputs))]; out != "" {
				f.SetBytes([]byte(out))
			}
		case []int64:
			if short {
				continue
			}
			f.Set(reflect.ValueOf([]int64{r.Int64(), 0}))
		case *PayloadRef:
			if short {
				continue
			}
			f.Set(reflect.ValueOf(&PayloadRef{Subject: "a.b", Parts: 2, Size: r.Int(), Hash: "f0"}))
		default:
			switch f.Kind() { //nolint:exhaustive // the kinds that wire has
			case reflect.String:
				f.SetString(texts[r.IntN(len(texts))])
			case reflect.Int64:
				f.SetInt(r.Int64() >> r.IntN(63) * (1 - 2*r.Int64N(2)))
			case reflect.Uint64:
				f.SetUint(r.Uint64() >> r.IntN(63))
			case reflect.Bool:
				f.SetBool(true)
			default:
				panic("wire has a new kind of field: " + f.Kind().String())
			}
		}
	}
	return w
}

func standardJSON(t *testing.T, v any) string {
	t.Helper()
	var b strings.Builder
	form := json.NewEncoder(&b)
	form.SetEscapeHTML(false)
	if err := form.Encode(v); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func TestWireIsItsJSON(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const rounds = 5000
	for round := range rounds {
		short := round%2 == 0
		w := anyWire(r, short)
		want := standardJSON(t, w)
		got, err := w.append(nil)
		if err != nil || string(got) != want {
			t.Fatalf("got  %s, %v\nwant %s", got, err, want)
		}
		var back, read wire
		if err := json.Unmarshal(got, &back); err != nil {
			t.Fatal(err)
		}
		if read, err = parseWire(want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(back, read); diff != "" {
			t.Fatalf("%s\nencoding/json -, parseWire +:\n%s", want, diff)
		}
		if short && !new(wire).parse(want) {
			t.Fatalf("parse refuses %s", want)
		}
	}
}

func TestParseWireLeavesTheUnknownToJSON(t *testing.T) {
	for text, want := range map[string]wire{
		`{}`:                                     {},
		`{"status":"FAILED","unheard":{"of":1}}`: {Status: "FAILED"},
		`{"keep":1 , "run":2}`:                   {Retention: 1, Run: 2},
		`{"run":2,"keep":1}`:                     {Retention: 1, Run: 2},
		`{"why":"a\nb"}`:                         {InlineError: "a\nb"},
		`{"begun":[1,2],"run":3}`:                {StartTimes: []int64{1, 2}, Run: 3},
		`{"emitted":false}`:                      {},
	} {
		got, err := parseWire(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: want -, got +:\n%s", text, diff)
		}
	}
	for _, text := range []string{"", "{", `{"run":}`, `{"run":1.5}`, `{"run":1}x`, `{"status":7}`, `{"said":}`, `["run"]`} {
		if got, err := parseWire(text); err == nil {
			t.Errorf("%q: got %+v, want an error", text, got)
		}
	}
}

func FuzzParseWire(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 20 {
		w := anyWire(r, i%2 == 0)
		text, err := w.append(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseWire(text)
		var want wire
		if json.Unmarshal([]byte(text), &want) != nil {
			return // append never writes that
		}
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: encoding/json -, parseWire +:\n%s", text, diff)
		}
	})
}

func BenchmarkWireAppend(b *testing.B) {
	w := benchWire()
	for b.Loop() {
		if _, err := w.append(make([]byte, 0, 1024)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWireParse(b *testing.B) {
	w := benchWire()
	text, err := w.append(nil)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := parseWire(string(text)); err != nil {
			b.Fatal(err)
		}
	}
}

func benchWire() *wire {
	const at = 1_795_000_000_000
	return &wire{
		Status: "COMPLETED", Mode: "sync", Class: "normal", Attempt: 1, Run: 1, Submitted: at, Queued: at, Started: at, Finished: at,
		Expires: at, RetainUntil: at, ExecutionTimeout: 600_000, Retention: 60_000, Lease: 30_000, QueueSeq: 123_456, QueueExpires: at,
		AckSubject: "$JS.ACK.JOBS_endpoint.normal.1.123456.123456.1795000000000000000.0",
		Holder:     "kZ1iWYQbqAdXh1t1oHAcyC", Changed: at, Worker: "worker-1", InlineOutput: json.RawMessage(`{"text":"` + strings.Repeat("x", 245) + `"}`),
	}
}
