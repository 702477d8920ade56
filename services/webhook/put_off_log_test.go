package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"time"

	"flightline/shared/deliveries"
)

func TestTasksThatArePutOffAgainAndAgainAreSomeLines(t *testing.T) {
	t.Parallel()
	const times = 5000
	var out bytes.Buffer
	p := newPutOffLog(slog.New(slog.NewJSONHandler(&out, nil)))
	began := time.Now()
	for range times {
		p.write(t.Context(), &task{Task: &deliveries.Task{}}, errors.New("UNDELIVERED takes no writes"))
	}
	most := maxPutOffBurst + int(time.Since(began)/putOffInterval) + 1
	lines, counted := 0, int(p.omitted.Load())
	for line := range bytes.Lines(out.Bytes()) {
		var l struct {
			NotLogged int `json:"not_logged"` //nolint:tagliatelle // the key in the log
		}
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatal(err)
		}
		lines, counted = lines+1, counted+1+l.NotLogged
	}
	if lines == 0 || lines > most || counted != times {
		t.Errorf("got %d lines that stand for %d times, want at most %d for %d", lines, counted, most, times)
	}
}
