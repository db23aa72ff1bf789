#include "parallel/network_interface.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include "tests/support/bad_input.h"

namespace specdec {
namespace {

std::uint32_t ipv4(const char* text) {
  in_addr address{};
  EXPECT_EQ(inet_pton(AF_INET, text, &address), 1);
  return address.s_addr;
}

const std::vector<InterfaceAddress> kHost{{.interface = "lo", .address = ipv4("127.0.0.1"), .loopback = true},
                                          {.interface = "eth0", .address = ipv4("10.1.2.3"), .loopback = false},
                                          {.interface = "ib0", .address = ipv4("192.168.7.9"), .loopback = false}};

std::optional<std::uint32_t> select(std::string_view selection) { return select_address(kHost, selection, "KEY"); }

std::string complaint(std::span<const InterfaceAddress> addresses, std::string_view selection) {
  return tests::bad_input([&] { select_address(addresses, selection, "KEY on host"); });
}

TEST(NetworkInterface, IsSelectedByName) {
  EXPECT_EQ(select("eth0"), ipv4("10.1.2.3"));
  EXPECT_EQ(select("ib0"), ipv4("192.168.7.9"));
  EXPECT_EQ(select(""), std::nullopt);
}

TEST(NetworkInterface, IsSelectedBySubnet) {
  EXPECT_EQ(select("10.1.0.0/16"), ipv4("10.1.2.3"));
  EXPECT_EQ(select("192.168.7.200/24"), ipv4("192.168.7.9"));
  EXPECT_EQ(select("192.168.7.9/32"), ipv4("192.168.7.9"));
  EXPECT_EQ(select("0.0.0.0/0"), ipv4("127.0.0.1"));
}

TEST(NetworkInterface, IsTheFirstOfAListThatTheHostHas) {
  EXPECT_EQ(select("eno1,ib0,eth0"), ipv4("192.168.7.9"));
  EXPECT_EQ(select("10.2.0.0/16,eth0"), ipv4("10.1.2.3"));
}

TEST(NetworkInterface, IsRefusedWhenTheHostDoesNotHaveIt) {
  EXPECT_EQ(complaint(kHost, "eth7"),
            "KEY on host: found eth7, expected an interface or a subnet of that host: lo (127.0.0.1), eth0 (10.1.2.3), "
            "ib0 (192.168.7.9)");
  for (const char* selection :
       {"eth", "10.2.0.0/16", "10.1.2.3/33", "10.1.2.3/", "10.1.2/24", "10.1.2.3", ",", "eth0 "}) {
    EXPECT_NE(complaint(kHost, selection), "") << selection;
  }
  EXPECT_NE(complaint({}, "eth0"), "");
}

TEST(NetworkInterface, ThisHostHasLoopback) {
  bool found = false;
  for (const InterfaceAddress& address : interface_addresses()) {
    found = found || (address.loopback && address.address == htonl(INADDR_LOOPBACK));
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace specdec
