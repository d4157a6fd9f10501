//go:build unix && !linux

package forge

import (
	"errors"
	"fmt"
	"os"
)

// lockByte fails: locks that brokers see and that belong to a file are Linux's.
func lockByte(*os.File) error {
	return fmt.Errorf("lock the first byte: %w", errors.ErrUnsupported)
}
