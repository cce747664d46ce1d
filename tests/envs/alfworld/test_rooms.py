from interlat.envs.alfworld.rooms import CAN_HOLD, ROOMS, room


def test_all_rooms_of_the_package_are_used() -> None:
    assert len(set().union(*ROOMS.values())) == 120


def test_unseen_rooms_are_never_trained_on_nor_shared() -> None:
    assert not set(ROOMS["train"]) & (set(ROOMS["valid_unseen"]) | set(ROOMS["final_unseen"]))
    assert not set(ROOMS["valid_unseen"]) & set(ROOMS["final_unseen"])


def test_every_portable_kind_fits_into_some_receptacle_of_its_room() -> None:
    for number in set().union(*ROOMS.values()):
        kinds = {kind for _, kind in room(number).receptacles}
        for thing in room(number).portable:
            assert any(thing in CAN_HOLD.get(kind, ()) for kind in kinds), (number, thing)


def test_a_sink_is_used_through_its_basin() -> None:
    places = dict(room(1).receptacles)
    sinks = [place for place in places if place.startswith("Sink|")]
    assert [places[place] for place in sinks] == ["SinkBasin"]
    assert sinks[0].count("SinkBasin") == 1
