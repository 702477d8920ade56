package host

import (
	"context"
	"encoding/xml"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"

	"flightline/shared/pod"
)

// smiTimeout bounds one call of nvidia-smi: it waits while a driver is loaded.
const smiTimeout = 10 * time.Second

// smiLog is what `nvidia-smi -q -x` prints, as far as it is read here.
type smiLog struct {
	Driver string `xml:"driver_version"`
	CUDA   string `xml:"cuda_version"`
	GPUs   []struct {
		Name   string `xml:"product_name"`
		UUID   string `xml:"uuid"`
		Memory string `xml:"fb_memory_usage>total"`
		// Uncorrectable is "N/A" on a card without ECC. Recovery is what the card needs
		// before it works again, "None" for nothing; older drivers print neither.
		Uncorrectable string `xml:"ecc_errors>volatile>dram_uncorrectable"`
		Recovery      string `xml:"gpu_recovery_action"`
	} `xml:"gpu"`
}

// smi asks nvidia-smi of the PATH. A machine without it has no error and no GPUs.
func smi(ctx context.Context) (found []pod.GPU, driver string, err error) {
	if _, missing := exec.LookPath("nvidia-smi"); missing != nil {
		return nil, "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, smiTimeout)
	defer cancel()
	out, err := output(ctx, "nvidia-smi", "-q", "-x")
	if err != nil {
		return nil, "", fmt.Errorf("nvidia-smi -q -x: %w", err)
	}
	return parseSMI(out)
}

// running are the programs under way.
var running singleflight.Group

// output is what a program printed. It returns with ctx also if the program goes on: one
// that asks a driver that hangs does not end on SIGKILL. No second one is started beside it.
func output(ctx context.Context, name string, args ...string) ([]byte, error) {
	ended := running.DoChan(name+" "+strings.Join(args, " "), func() (any, error) {
		return exec.CommandContext(ctx, name, args...).Output() //nolint:gosec // this package says which program
	})
	select {
	case r := <-ended:
		printed, _ := r.Val.([]byte)
		return printed, r.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// parseSMI reads what `nvidia-smi -q -x` printed.
func parseSMI(out []byte) (found []pod.GPU, driver string, err error) {
	var log smiLog
	if err := xml.Unmarshal(out, &log); err != nil {
		return nil, "", fmt.Errorf("read the output of nvidia-smi: %w", err)
	}
	for _, g := range log.GPUs {
		card := pod.GPU{Vendor: pod.NVIDIA, Name: g.Name, UUID: g.UUID, Driver: log.Driver, CUDA: known(log.CUDA)}
		if number, _, ok := strings.Cut(g.Memory, " MiB"); ok {
			card.MemoryMB, _ = strconv.Atoi(strings.TrimSpace(number)) // 0 says that it is unknown
		}
		card.MemoryGB = inGB(float64(card.MemoryMB) * (1 << 20))
		if n, err := strconv.Atoi(g.Uncorrectable); err == nil && n > 0 {
			card.Health = fmt.Sprintf("%d uncorrectable memory errors since the driver was loaded", n)
		}
		if need := known(g.Recovery); need != "" && need != "None" {
			card.Health = "the driver asks for recovery: " + need
		}
		found = append(found, card)
	}
	return found, log.Driver, nil
}

// known is what nvidia-smi printed, "" for what it says that it does not know.
func known(text string) string {
	text = strings.TrimSpace(text)
	if text == "N/A" || text == "Unknown Error" || text == "Not Found" {
		return ""
	}
	return text
}
