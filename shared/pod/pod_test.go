package pod

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

func TestStatusTable(t *testing.T) {
	for _, tc := range []struct {
		from Status
		by   Trigger
		to   Status // "" for impossible
	}{
		{Running, Start, Running},
		{Running, Stop, Exited},
		{Running, Exit, Exited},
		{Running, Leave, Exited},
		{Running, Remove, Terminated},
		{Exited, Start, Running},
		{Exited, Stop, Exited},
		{Exited, Exit, Exited},
		{Exited, Leave, Exited},
		{Exited, Remove, Terminated},
		{Terminated, Start, ""},
		{Terminated, Stop, ""},
		{Terminated, Exit, Terminated},
		{Terminated, Leave, Terminated},
		{Terminated, Remove, Terminated},
		{"LOST", Start, ""},
		{Running, "nudge", ""},
	} {
		got, err := tc.from.Next(tc.by)
		if tc.to == "" && (!errors.Is(err, ErrConflict) || got != tc.from) || tc.to != "" && (err != nil || got != tc.to) {
			t.Errorf("%s by %s: got %s %v, want %s", tc.from, tc.by, got, err, tc.to)
		}
	}
}

func TestOnlyWhoEndsUnaskedHasFailed(t *testing.T) {
	for _, tc := range []struct {
		status Status
		by     Trigger
		want   bool
	}{
		{Exited, Exit, true},
		{Exited, "", true}, // written by an earlier version
		{Exited, Stop, false},
		{Exited, Leave, false},
		{Running, Start, false},
		{Terminated, Remove, false},
		{Terminated, Exit, false},
	} {
		if got := (Pod{Status: tc.status, By: tc.by}).Failed(); got != tc.want {
			t.Errorf("%s by %q: got %v, want %v", tc.status, tc.by, got, tc.want)
		}
	}
}

func TestCheckNamesTheField(t *testing.T) {
	fine := Pod{ID: "p", Name: "n", Driver: Docker, Spec: Spec{Image: "i"}}
	for field, change := range map[string]func(*Pod){
		"":                        func(*Pod) {},
		"id":                      func(p *Pod) { p.ID = "a.b" },
		"name":                    func(p *Pod) { p.Name = strings.Repeat("é", 192) },
		"imageName":               func(p *Pod) { p.Spec.Image = "" },
		"dockerStartCmd":          func(p *Pod) { p.Driver = Process },
		"driver":                  func(p *Pod) { p.Driver = External },
		"containerRegistryAuthId": func(p *Pod) { p.Spec.RegistryAuthID = "a b" },
		"dockerEntrypoint":        func(p *Pod) { p.Spec.Entrypoint = make([]string, 101) },
		"dockerEntrypoint[0]":     func(p *Pod) { p.Spec.Entrypoint = []string{""} },
		"dockerStartCmd: all":     func(p *Pod) { p.Spec.Command = []string{"sh", strings.Repeat("x", MaxWordBytes)} },
		"dockerStartCmd[1]":       func(p *Pod) { p.Spec.Command = []string{"a", "\x00"} },
		"env":                     func(p *Pod) { p.Spec.Env = map[string]string{"A": strings.Repeat("x", MaxEnvBytes)} },
		"env.A":                   func(p *Pod) { p.Spec.Env = map[string]string{"A": "a\nb"} },
		"env.RUNPOD_INIT_TIMEOUT": func(p *Pod) { p.Spec.Env = map[string]string{"RUNPOD_INIT_TIMEOUT": "7m"} },
		"ports":                   func(p *Pod) { p.Spec.Ports = make([]string, 101) },
		"ports[0]":                func(p *Pod) { p.Spec.Ports = []string{"65536/tcp"} },
		"ports[1]":                func(p *Pod) { p.Spec.Ports = []string{"65535/tcp", "080/http"} },
		"gpuCount":                func(p *Pod) { p.Spec.GPUs = -1 },
		"vcpuCount":               func(p *Pod) { p.Spec.VCPUs = math.NaN() },
		"memoryInGb":              func(p *Pod) { p.Spec.MemoryGB = MaxMemoryGB + 1 },
		"containerDiskInGb":       func(p *Pod) { p.Spec.DiskGB = MaxDiskGB + 1 },
		"volumeInGb":              func(p *Pod) { p.Spec.VolumeGB = -1 },
		"volumeMountPath":         func(p *Pod) { p.Spec.VolumePath = "/a/../b" },
	} {
		p := fine
		change(&p)
		err := p.Check()
		wrong, ok := errors.AsType[*FieldError](err)
		if field == "" && err != nil || field != "" && (!ok || wrong.Field != strings.TrimSuffix(field, ": all") || !errors.Is(err, ErrInvalid)) {
			t.Errorf("got %v, want an error of %q", err, field)
		}
	}
	for field, thing := range map[string]interface{ Check() error }{
		"category": Template{Name: "n", Category: "TPU"}, "readme": Template{Name: "n", Readme: strings.Repeat("x", MaxReadme+1)},
		"name": Template{}, "size": Volume{Name: "n"}, "path": Volume{Name: "n", SizeGB: 1, Path: "/a:/b"},
		"dataCenterId": Volume{Name: "n", SizeGB: 1, DataCenterID: strings.Repeat("x", MaxText+1)},
	} {
		if wrong, ok := errors.AsType[*FieldError](thing.Check()); !ok || wrong.Field != field {
			t.Errorf("got %v, want an error of %s", thing.Check(), field)
		}
	}
}

func TestInitTimeout(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"1": time.Second, "1800": 30 * time.Minute, "86400": MaxInitTimeout, "86401": 0, "0": 0, "-1": 0, "1.5": 0, "7m": 0, "99999999999999999999": 0,
	} {
		s := Spec{Env: map[string]string{"RUNPOD_INIT_TIMEOUT": value}}
		if got := s.InitTimeout(); got != want {
			t.Errorf("%q: got %s, want %s", value, got, want)
		}
		if err := s.Check(); (err == nil) != (want > 0) {
			t.Errorf("%q: got %v", value, err)
		}
	}
	if got := (Spec{}).InitTimeout(); got != 0 {
		t.Errorf("got %s without the variable, want 0", got)
	}
}

func TestWorkerEnvironment(t *testing.T) {
	all := WorkerEnvironment(Worker{
		BaseURL: "http://h:1/", Endpoint: "ep", ID: "w", Token: "fw_x", PingInterval: 5 * time.Second,
		Env: map[string]string{"B": "2", "A": "1", "RUNPOD_AI_API_KEY": "other", "RUNPOD_POD_ID": "other", "RUNPOD_LOG_LEVEL": "DEBUG"},
	})
	got := map[string]string{}
	for _, v := range all {
		if _, twice := got[v.Name]; twice {
			t.Errorf("%s is there twice", v.Name)
		}
		got[v.Name] = v.Value
	}
	for name, want := range map[string]string{
		"RUNPOD_WEBHOOK_GET_JOB": "http://h:1/v2/ep/job-take/w?gpu=any", "RUNPOD_WEBHOOK_POST_OUTPUT": "http://h:1/v2/ep/job-done/w/$ID?gpu=any",
		"RUNPOD_PING_INTERVAL": "5000", "RUNPOD_AI_API_KEY": "fw_x", "RUNPOD_POD_ID": "w", "RUNPOD_LOG_LEVEL": "DEBUG", "A": "1", "B": "2",
	} {
		if got[name] != want {
			t.Errorf("%s: got %q, want %q", name, got[name], want)
		}
	}
}
