// Package source is the live tail of a broker's commit log.
package source
