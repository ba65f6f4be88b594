// Package ground gives processes a network and a disk of their own that can be broken: a network
// namespace per host, joined by a bridge, and a small ext4 file system per disk on a loop device.
//
// Everything it makes carries the name of its slot. A slot belongs to one living process at a time,
// by a lock that dies with the process; whoever takes one first clears away what the last owner left,
// so that a run that was killed -9 leaves nothing for longer than until the next run.
//
// It needs root, and the programs ip, nsenter, nft, mkfs.ext4, mount and umount. What is not possible
// is told by Able, and is not pretended: hosts are then the machine itself, and disks plain directories.
package ground
