package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit and the Go release it was built with",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			info, ok := debug.ReadBuildInfo()
			if !ok {
				info = &debug.BuildInfo{}
			}
			_, err := fmt.Fprintln(a.stdout, versionLine(info))
			return err
		},
	}
}

// versionLine says what the toolchain has stamped into the binary. A test binary and
// "go run" have no commit.
func versionLine(info *debug.BuildInfo) string {
	version, commit, changed := info.Main.Version, "unknown", ""
	if version == "" {
		version = "(devel)"
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = " with changes"
		}
	}
	return fmt.Sprintf("postroom %s commit %s%s %s", version, commit, changed, info.GoVersion)
}
