/* Receive interrupts of Intel's 8254x to 8257x and their successors in chipsets (I217, I219), which DPDK drives with
 * net_e1000_em. The driver sets the register ITR so that 16.8 ms pass between two interrupts (DPDK 22.11,
 * drivers/net/e1000/em_ethdev.c, eth_em_start). Here the interval is set to zero: a wait ends with its first
 * interrupt, and the policy chooses how long to wait. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <linux/vfio.h>

#include <rte_dev.h>
#include <rte_ethdev.h>
#include <rte_vfio.h>

#include "shim.h"

#define DEVICES "/sys/bus/pci/devices"
/* Offset of the register in BAR 0 (82574 GbE Controller Family Datasheet), and how many bytes of BAR 0 are mapped. */
#define ITR 0xc4
#define MAPPED 4096

/* With MSI-X, the 82574 raises receive interrupts for a cause that the driver does not enable (RxQ0), through a vector
 * that it does not assign (IVAR). So they would never arrive. */
static int uses_msix(const char *name)
{
	char path[PATH_MAX], kind[8] = "";
	struct dirent *entry;
	DIR *folder;
	int msix = 0;

	snprintf(path, sizeof(path), DEVICES "/%s/msi_irqs", name);
	folder = opendir(path);
	if (folder == NULL)
		return 0;
	while (!msix && (entry = readdir(folder)) != NULL) {
		FILE *file;

		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), DEVICES "/%s/msi_irqs/%s", name, entry->d_name);
		file = fopen(path, "r");
		if (file == NULL)
			continue;
		msix = fgets(kind, sizeof(kind), file) != NULL && strncmp(kind, "msix", 4) == 0;
		fclose(file);
	}
	closedir(folder);
	return msix;
}

/* The device's vfio file descriptor. Sets `at` to the offset of BAR 0 in it. */
static int open_vfio(const char *name, off_t *at)
{
	struct vfio_region_info region = { .argsz = sizeof(region), .index = VFIO_PCI_BAR0_REGION_INDEX };
	int number, group, file;

	if (!rte_vfio_is_enabled("vfio") || rte_vfio_get_group_num(DEVICES, name, &number) <= 0)
		return -1;
	group = rte_vfio_get_group_fd(number);
	file = group < 0 ? -1 : ioctl(group, VFIO_GROUP_GET_DEVICE_FD, name);
	if (file >= 0 && ioctl(file, VFIO_DEVICE_GET_REGION_INFO, &region) < 0) {
		close(file);
		return -1;
	}
	*at = (off_t)region.offset;
	return file;
}

/* Maps the start of BAR 0. sysfs offers it only for a device that is not bound to vfio-pci. */
static uint8_t *map(const char *name)
{
	char path[PATH_MAX];
	off_t at = 0;
	int file = open_vfio(name, &at);
	void *start;

	if (file < 0) {
		snprintf(path, sizeof(path), DEVICES "/%s/resource0", name);
		file = open(path, O_RDWR | O_CLOEXEC);
	}
	if (file < 0)
		return NULL;
	start = mmap(NULL, MAPPED, PROT_READ | PROT_WRITE, MAP_SHARED, file, at);
	close(file);
	return start == MAP_FAILED ? NULL : start;
}

int apus_e1000_begin(uint16_t port)
{
	struct rte_eth_dev_info known;
	int result = rte_eth_dev_info_get(port, &known);
	uint8_t *registers;

	if (result < 0)
		return result;
	if (strcmp(known.driver_name, "net_e1000_em") != 0)
		return 0;
	if (uses_msix(rte_dev_name(known.device)))
		return -ENOTSUP;
	registers = map(rte_dev_name(known.device));
	if (registers == NULL)
		return -ENOTSUP;
	*(volatile uint32_t *)(registers + ITR) = 0;
	munmap(registers, MAPPED);
	return 0;
}
