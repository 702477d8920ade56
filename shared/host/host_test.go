package host

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/pod"
)

func TestLookFindsThisMachine(t *testing.T) {
	m := Look(t.Context(), nil)
	t.Logf("this machine: %+v", m)
	if m.OS != runtime.GOOS || m.Arch != runtime.GOARCH || m.Hostname == "" || m.VCPUs <= 0 || m.VCPUs > float64(runtime.NumCPU()) {
		t.Errorf("got %+v", m)
	}
	if runtime.GOOS != "linux" {
		return
	}
	if m.CPU.Threads < 1 || m.CPU.Cores < 1 || m.CPU.Cores > m.CPU.Threads || m.MemoryGB <= 0 || m.DiskGB <= 0 {
		t.Errorf("got %+v", m)
	}
	for _, a := range m.Addresses {
		if strings.HasPrefix(a, "127.") || strings.HasPrefix(a, "169.254.") || strings.HasPrefix(a, "fe80") || a == "::1" {
			t.Errorf("got address %s among %q", a, m.Addresses)
		}
	}
}

func TestCPUsAreTheContainers(t *testing.T) {
	for name, tt := range map[string]struct {
		files map[string]string
		want  float64
	}{
		"none":                    {nil, 0},
		"version 2":               {map[string]string{"cpu.max": "150000 100000\n"}, 1.5},
		"version 2, no limit":     {map[string]string{"cpu.max": "max 100000\n"}, 0},
		"version 2, no period":    {map[string]string{"cpu.max": "150000\n"}, 0},
		"version 1":               {map[string]string{"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 0.5},
		"version 1, no cpu limit": {map[string]string{"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 0},
		"nonsense":                {map[string]string{"cpu.max": ""}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := cpusIn(folder(t, tt.files)); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestTheLeastHolds(t *testing.T) {
	// On version 1 no limit is a huge number.
	for limit, want := range map[float64]float64{0: 1000, 400: 400, 9223372036854771712: 1000} {
		if got := least(1000, limit); got != want {
			t.Errorf("limit %v: got %v, want %v", limit, got, want)
		}
	}
	if got := inGB(66.666 * (1 << 30)); got != 66.67 {
		t.Errorf("got %v, want a hundredth", got)
	}
}

func TestGPUsAreThoseOfTheDriver(t *testing.T) {
	dir := folder(t, map[string]string{
		"version":                       "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.124.06  Wed Feb 26 01:00:00 UTC 2025\nGCC version: gcc 12\n",
		"gpus/0000:19:00.0/information": "Model: \t\t NVIDIA H200\nIRQ:   \t\t 76\nGPU UUID: \t GPU-0a1b\nBus Type: \t PCIe\n",
	})
	got, driver := gpusIn(dir)
	if diff := cmp.Diff([]pod.GPU{{Vendor: pod.NVIDIA, Name: "NVIDIA H200", UUID: "GPU-0a1b", Driver: "570.124.06"}}, got); diff != "" || driver != "570.124.06" {
		t.Errorf("driver %q, %s", driver, diff)
	}
	if got, driver := gpusIn(filepath.Join(dir, "absent")); len(got) != 0 || driver != "" {
		t.Errorf("got %+v, driver %q, want none", got, driver)
	}
}

func TestGPUsOfNvidiaSMI(t *testing.T) {
	card := func(uuid, ecc, recovery string) string {
		return "<gpu id=\"00000000:01:00.0\"><product_name>NVIDIA L4</product_name><uuid>" + uuid + "</uuid><fb_memory_usage><total>23034 MiB</total><used>1 MiB</used></fb_memory_usage>" +
			"<ecc_errors><volatile><dram_uncorrectable>" + ecc + "</dram_uncorrectable></volatile></ecc_errors><gpu_recovery_action>" + recovery + "</gpu_recovery_action></gpu>"
	}
	got, driver, err := parseSMI([]byte(`<?xml version="1.0" ?><!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd"><nvidia_smi_log><driver_version>570.1</driver_version><cuda_version>12.8</cuda_version>` +
		card("GPU-1", "0", "None") + card("GPU-2", "N/A", "N/A") + card("GPU-3", "2", "None") + card("GPU-4", "0", "Reset") + `</nvidia_smi_log>`))
	like := func(uuid, health string) pod.GPU {
		return pod.GPU{Vendor: pod.NVIDIA, Name: "NVIDIA L4", UUID: uuid, MemoryMB: 23034, MemoryGB: 22.49, Driver: "570.1", CUDA: "12.8", Health: health}
	}
	want := []pod.GPU{like("GPU-1", ""), like("GPU-2", ""), like("GPU-3", "2 uncorrectable memory errors since the driver was loaded"), like("GPU-4", "the driver asks for recovery: Reset")}
	if diff := cmp.Diff(want, got); err != nil || driver != "570.1" || diff != "" {
		t.Errorf("driver %q, err %v, %s", driver, err, diff)
	}
	if _, _, err := parseSMI([]byte("NVIDIA-SMI has failed")); err == nil {
		t.Error("got no error for what is not XML")
	}
}

func TestGPUsOfAMD(t *testing.T) {
	dir := folder(t, map[string]string{
		"card0/device/vendor": "0x1002\n", "card0/device/unique_id": "a1b2c3\n", "card0/device/product_name": "AMD Instinct MI210\n", "card0/device/mem_info_vram_total": "68702699520\n",
		"card0-DP-1/device/vendor": "0x1002\n", "card0-DP-1/device/unique_id": "a1b2c3\n",
		"card1/device/vendor": "0x1002\n", // within a processor
		"card2/device/vendor": "0x10de\n", "card2/device/unique_id": "ffff\n",
		"driver/version": "6.8.5\n",
	})
	want := []pod.GPU{{Vendor: pod.AMD, UUID: "GPU-a1b2c3", Name: "AMD Instinct MI210", MemoryMB: 65520, MemoryGB: 63.98, Driver: "6.8.5"}}
	got, _ := amdIn(dir, filepath.Join(dir, "driver"))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestIDIsOfTheMachineAndDoesNotTellItsOwn(t *testing.T) {
	own := strings.Repeat("0a", 16)
	dir := folder(t, map[string]string{"id": own + "\n", "short": "0a0a\n", "other": strings.Repeat("0b", 16)})
	id := idFrom(filepath.Join(dir, "absent"), filepath.Join(dir, "short"), filepath.Join(dir, "id"))
	if !pod.ValidID(id) || strings.Contains(own, id) || id != idFrom(filepath.Join(dir, "id")) || id == idFrom(filepath.Join(dir, "other")) {
		t.Errorf("got %q", id)
	}
	if got := idFrom(filepath.Join(dir, "absent")); got != "" {
		t.Errorf("got %q, want none", got)
	}
}

// folder returns one with the files.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
