package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"flightline/shared/deliveries"
	"flightline/shared/telemetry"
)

func TestTasksThatArePutOffAgainAndAgainAreSomeLines(t *testing.T) {
	t.Parallel()
	const times = 5000
	var out bytes.Buffer
	s := &Service{log: slog.New(slog.NewJSONHandler(&out, nil)), putOffs: telemetry.NewLogLimit(rate.Every(putOffInterval), maxPutOffBurst)}
	began := time.Now()
	for range times {
		s.logPutOff(t.Context(), &task{Task: &deliveries.Task{}}, errors.New("UNDELIVERED takes no writes"))
	}
	most := maxPutOffBurst + int(time.Since(began)/putOffInterval) + 1
	lines, counted := 0, 0
	for _, rest := range s.putOffs.Attrs() {
		counted += int(rest.Value.Int64())
	}
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
