package host

import (
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/pod"
)

const (
	amdStatic = `[{"gpu":0,"asic":{"market_name":"AMD Instinct MI210","asic_serial":"0xA1"},"bus":{"bdf":"0000:03:00.0"},"vram":{"type":"HBM","size":{"value":65520,"unit":"MB"}}},
 {"gpu":1,"asic":{"market_name":"N/A"},"bus":{"bdf":"0000:83:00.0"},"vram":{"size":"N/A"}}]`
	amdECC = `[{"gpu":0,"ecc":{"total_correctable_count":4,"total_uncorrectable_count":2}},{"gpu":1,"ecc":{"total_uncorrectable_count":"N/A"}}]`
)

func TestAMDSMIIsRead(t *testing.T) {
	both := map[string]amdCard{"0000:03:00.0": {"AMD Instinct MI210", 65520, 2}, "0000:83:00.0": {}}
	healthy := map[string]amdCard{"0000:03:00.0": {"AMD Instinct MI210", 65520, 0}, "0000:83:00.0": {}}
	for name, tt := range map[string]struct {
		static, ecc string
		want        map[string]amdCard
		fails       bool
	}{
		"a list":                    {amdStatic, amdECC, both, false},
		"an object, as of ROCm 7":   {`{"gpu_data":` + amdStatic + `}`, `{"gpu_data":` + amdECC + `}`, both, false},
		"a size that is a number":   {`[{"gpu":0,"bus":{"bdf":"0000:0A:00.0"},"vram":{"size":8176}}]`, `[]`, map[string]amdCard{"0000:0a:00.0": {"", 8176, 0}}, false},
		"a size in GB":              {`[{"gpu":0,"bus":{"bdf":"b"},"vram":{"size":{"value":16,"unit":"GB"}}}]`, `[]`, map[string]amdCard{"b": {"", 16384, 0}}, false},
		"a size of nonsense":        {`[{"gpu":0,"bus":{"bdf":"b"},"vram":{"size":{"value":-1,"unit":"MB"}}}]`, `[]`, map[string]amdCard{"b": {}}, false},
		"no count of errors":        {amdStatic, ``, healthy, true},
		"a card without a bus":      {`[{"gpu":0}]`, amdECC, map[string]amdCard{}, false},
		"nothing":                   {``, ``, nil, true},
		"a warning before the rest": {"WARNING: no root\n" + amdStatic, amdECC, nil, true},
	} {
		got, err := parseAMD([]byte(tt.static), []byte(tt.ecc))
		if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(amdCard{})); diff != "" || (err != nil) != tt.fails {
			t.Errorf("%s: %v, %s", name, err, diff)
		}
	}
}

func FuzzParseAMD(f *testing.F) {
	f.Add([]byte(amdStatic), []byte(amdECC))
	f.Add([]byte(`{"gpu_data":[{"gpu":0,"vram":{"size":1e99}}]}`), []byte(`[{"ecc":{"total_uncorrectable_count":-1}}]`))
	f.Fuzz(func(t *testing.T, static, ecc []byte) {
		cards, _ := parseAMD(static, ecc)
		for address, c := range cards {
			if address == "" || c.memoryMB < 0 || c.uncorrectable < 0 {
				t.Errorf("%q: got %+v", address, c)
			}
		}
	})
}

// A card of which the driver's files say neither the name nor the memory.
func TestAMDSMICompletesWhatTheDriverSays(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("runs a script")
	}
	dir := folder(t, map[string]string{
		"pci/0000:03:00.0/vendor": "0x1002\n", "pci/0000:03:00.0/unique_id": "a1b2c3\n", "card0/x": "", "driver/version": "6.8.5\n",
		"bin/amd-smi": "#!/bin/sh\nPATH=/usr/bin:/bin\ncase $1 in static) cat <<'E'\n" + amdStatic + "\nE\n;; metric) cat <<'E'\n" + amdECC + "\nE\n;; esac\n",
	})
	if err := os.Symlink(filepath.Join(dir, "pci", "0000:03:00.0"), filepath.Join(dir, "card0", "device")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "bin", "amd-smi"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Join(dir, "bin"))
	cards, addresses := amdIn(dir, filepath.Join(dir, "driver"))
	askAMD(t.Context(), cards, addresses, slog.New(slog.DiscardHandler))
	want := []pod.GPU{{
		Vendor: pod.AMD, UUID: "GPU-a1b2c3", Name: "AMD Instinct MI210", MemoryMB: 65520, MemoryGB: 63.98, Driver: "6.8.5",
		Health: "2 uncorrectable memory errors since the driver was loaded",
	}}
	if diff := cmp.Diff(want, cards); diff != "" {
		t.Error(diff)
	}
}
