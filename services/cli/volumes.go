package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"flightline/shared/client"
)

func (sh *shell) volumeCommand() *cobra.Command {
	c := &cobra.Command{Use: "volume", Short: "Make, show, change and remove network volumes", Args: cobra.NoArgs, RunE: needsVerb}
	c.AddCommand(
		sh.volumeVerb("create", "Make a network volume; --name and --size are needed", cobra.NoArgs,
			func(ctx context.Context, v client.Volumes, _ []string, spec client.VolumeSpec) (*client.Volume, error) {
				return v.Create(ctx, spec)
			}),
		sh.volumeVerb("update ID", "Change a network volume", cobra.ExactArgs(1),
			func(ctx context.Context, v client.Volumes, args []string, spec client.VolumeSpec) (*client.Volume, error) {
				return v.Update(ctx, args[0], spec)
			}),
		sh.getVolume(), sh.listVolumes(),
		sh.deleteThing("Remove a network volume that nothing uses, and nothing that it holds", func(ctx context.Context, api *client.Client, id string) error {
			return api.Volumes().Delete(ctx, id)
		}))
	return c
}

func (sh *shell) volumeVerb(use, short string, args cobra.PositionalArgs, send func(context.Context, client.Volumes, []string, client.VolumeSpec) (*client.Volume, error)) *cobra.Command {
	var spec client.VolumeSpec
	c := &cobra.Command{Use: use, Short: short, Args: args}
	c.Flags().StringVar(&spec.Name, "name", "", "name for people")
	c.Flags().IntVar(&spec.Size, "size", 0, "size in `GB`; it never becomes less")
	c.Flags().StringVar(&spec.DataCenter, "data-center", "", "`id` of the place where it is (default local)")
	c.Flags().StringVar(&spec.Path, "path", "", "`path` where it is on the hosts")
	c.RunE = sh.with(func(ctx context.Context, api *client.Client, args []string) error {
		v, err := send(ctx, api.Volumes(), args, spec)
		if err != nil {
			return err
		}
		return sh.showVolume(v)
	})
	return c
}

func (sh *shell) getVolume() *cobra.Command {
	return &cobra.Command{
		Use: "get ID", Short: "Show a network volume", Args: cobra.ExactArgs(1),
		RunE: sh.with(func(ctx context.Context, api *client.Client, args []string) error {
			v, err := api.Volumes().Get(ctx, args[0])
			if err != nil {
				return err
			}
			return sh.showVolume(v)
		}),
	}
}

func (sh *shell) listVolumes() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the network volumes", Args: cobra.NoArgs,
		RunE: sh.with(func(ctx context.Context, api *client.Client, _ []string) error {
			list, err := api.Volumes().List(ctx)
			if err != nil {
				return err
			}
			rows := [][]string{{"ID", "NAME", "GB", "DATA CENTER"}}
			for _, v := range list {
				rows = append(rows, []string{v.ID, clean(v.Name), fmt.Sprint(v.Size), clean(v.DataCenter)})
			}
			return sh.show(list, rows)
		}),
	}
}

func (sh *shell) showVolume(v *client.Volume) error {
	rows := [][]string{{"ID", v.ID}, {"NAME", clean(v.Name)}, {"SIZE", fmt.Sprintf("%d GB", v.Size)}, {"DATA CENTER", clean(v.DataCenter)}}
	if v.Path != "" {
		rows = append(rows, []string{"PATH", clean(v.Path)})
	}
	return sh.show(v, rows)
}
