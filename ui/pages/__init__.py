"""The pages, one blueprint for each noun."""

from ui.pages import (
    activity,
    brand,
    campaigns,
    compose,
    contacts,
    conversation,
    doctor,
    domains,
    forms,
    home,
    inbox,
    jump,
    lists,
    login,
    pictures,
    reports,
    segments,
    settings,
    setup,
    suppressions,
    template_acts,
    templates,
)  # fmt: skip

BLUEPRINTS = tuple(
    module.pages
    for module in (
        setup,
        login,
        home,
        jump,
        campaigns,
        reports,
        compose,
        templates,
        template_acts,
        pictures,
        contacts,
        conversation,
        suppressions,
        lists,
        segments,
        forms,
        activity,
        inbox,
        brand,
        doctor,
        domains,
        settings,
    )
)
